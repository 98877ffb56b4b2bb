// What the page knows of one run, and how it keeps up. The newest steps are loaded first and the older ones behind them, page
// by page; from the entry that was newest then on, the server tells what is added. Everything is told to the views at most
// once a frame. While the live view is paused, what comes is kept and applied when it goes on.

import { get, ofRun } from '../api.js';
import { follow } from '../live.js';
import { settled } from '../dom.js';

/** @typedef {import('../types').Step} Step */
/** @typedef {import('../types').Entry} Entry */
/** @typedef {import('../types').WholeRun} WholeRun */
/**
 * A step with all its attempts.
 * @typedef {{
 *   path: string, node: string, title: string, depth: number, attempts: Step[], since: number, index: number,
 *   running: string | null, text: string, retry: string | null, version: number, error: string | null,
 * }} StepLine
 */

const PAGE = 500;
const MARKS = ['created', 'claimed', 'state_changed', 'asked', 'answer', 'requested', 'restored', 'files_restored'];
const OVER = ['completed', 'failed', 'cancelled'];

export class RunModel extends EventTarget {
  /** @param {string} id */
  constructor(id) {
    super();
    this.id = id;
    /** @type {WholeRun} */
    this.run = /** @type {any} */ (null);
    /** @type {Map<string, StepLine>} */
    this.lines = new Map();
    /** @type {StepLine[]} */
    this.sorted = [];
    /** @type {Entry[]} */
    this.marks = [];
    /** @type {import('../types').Question[]} */
    this.questions = [];
    this.answer = '';
    this.loading = false;
    this.paused = false;
    /** @type {(() => void)[]} */
    this.kept = [];
    this.version = 0;
    this.ended = false;
    /** @type {(() => void) | null} */
    this.stopFollowing = null;
    /** Where it stands, if it is debugged in this server. @type {import('../types').Debugged | null} */
    this.debug = null;
    /** @type {(() => void) | null} */
    this.stopDebug = null;
    /** @type {Promise<import('../types').Graph> | null} */
    this.graph = null;
    /** What people call each node, by its path. @type {Map<string, string>} */
    this.titles = new Map();
    this.drawn = false;
    this.turn = 0;
    /** @type {() => void} */
    this.knows = () => {};
    /** Stands when the newest steps are there, or can't be had. @type {Promise<void>} */
    this.known = new Promise((done) => { this.knows = done; });
    this.refresh = settled(() => { this.loadRun().catch(() => null); }, 250);
  }

  async loadRun() {
    const run = await get(ofRun(this.id));
    const asks = run.status === 'waiting' || run.questions.length > 0;
    this.questions = asks ? (await get(ofRun(this.id, '/questions'))).questions : [];
    this.run = run;
    if (OVER.includes(run.status)) for (const line of this.lines.values()) if (line.running) { line.running = null; line.version += 1; }
    this.tell('run');
    if (run.debugged && !this.stopDebug && !this.ended) this.followDebug();
  }

  /** Follows the debugger of the run until the session is over. */
  followDebug() {
    this.stopDebug = follow(ofRun(this.id, '/debug'), {
      seen: (seen) => {
        this.debug = seen;
        this.tell('debug');
        this.tell('steps');
        this.refresh();
      },
      end: () => {
        this.stopDebug = null;
        this.debug = null;
        this.tell('debug');
        this.tell('steps');
        this.refresh();
      },
    });
  }

  /** The document as a picture; it is loaded once. */
  loadGraph() {
    this.graph ??= get(ofRun(this.id, '/graph')).then((graph) => {
      this.takeTitles(graph, '');
      for (const line of this.lines.values()) {
        line.title = this.titles.get(line.node) ?? line.title;
        line.version += 1;
      }
      this.tell('steps');
      return graph;
    });
    // What failed is asked for anew.
    this.graph.catch(() => { this.graph = null; });
    return this.graph;
  }

  /**
   * @param {import('../types').Graph} graph
   * @param {string} above
   */
  takeTitles(graph, above) {
    for (const one of graph.nodes) {
      if (one.title) this.titles.set(above + one.id, one.title);
      if (one.inside) this.takeTitles(one.inside, `${above}${one.id}/`);
    }
  }

  /** Loads what is there, and follows what comes behind it. What it shows is read after it is known where that begins. */
  async loadSteps() {
    const turn = ++this.turn;
    this.stopFollowing?.();
    this.loading = true;
    const newest = (await get(ofRun(this.id, '/log'), { limit: 1 })).entries[0]?.seq ?? 0;
    const [first, marks] = await Promise.all([
      get(ofRun(this.id, '/steps'), { limit: PAGE }),
      get(ofRun(this.id, '/log'), { limit: 1000 }),
      this.loadRun(),
    ]);
    if (turn !== this.turn) return;
    this.lines.clear();
    /** @type {Entry[]} */
    const entries = marks.entries.reverse();
    this.marks = entries.filter((entry) => MARKS.includes(entry.kind));
    for (const step of first.steps) this.take(step);
    this.takeBegun(entries);
    this.follow(newest);
    this.tell('steps');
    // In the frame in which the views are told.
    requestAnimationFrame(this.knows);
    let before = first.next;
    while (before && turn === this.turn && !this.ended) {
      const given = await get(ofRun(this.id, '/steps'), { limit: PAGE, before });
      if (turn !== this.turn) return;
      for (const step of given.steps) this.take(step);
      before = given.next;
      this.tell('steps');
    }
    this.loading = false;
    this.tell('steps');
  }

  /**
   * An effect that was begun and has no end yet is at work, as long as a process drives the run.
   * @param {Entry[]} entries oldest first
   */
  takeBegun(entries) {
    if (this.run.status !== 'in_progress' || this.run.stalled) return;
    /** @type {Map<string, string>} */
    const begun = new Map();
    for (const { kind, label, created_at: at } of entries) {
      if (kind === 'effect_intent') begun.set(label, at);
      if (kind === 'step_done' || kind === 'effect_receipt') begun.delete(label);
      if (kind === 'claimed' || kind === 'restored') begun.clear();
    }
    for (const [path, at] of begun) this.running(path, at);
  }

  /** @param {number} after */
  follow(after) {
    this.stopFollowing = follow(ofRun(this.id, '/events'), {
      entry: (entry) => this.when(() => this.takeEntry(entry)),
      live: (event) => this.when(() => this.takeLive(event)),
      end: () => this.when(() => this.refresh()),
      problem: () => this.refresh(),
    }, { after, back: () => this.refresh() });
  }

  /**
   * Now, or when the live view goes on.
   * @param {() => void} act
   */
  when(act) {
    if (!this.paused) {
      act();
      return;
    }
    this.kept.push(act);
    this.tell('kept');
  }

  /** @param {boolean} on */
  pause(on) {
    this.paused = on;
    if (!on) for (const act of this.kept.splice(0)) act();
    this.tell('kept');
    this.tell('steps');
  }

  /**
   * @param {string} path
   * @returns {StepLine}
   */
  line(path) {
    let line = this.lines.get(path);
    if (!line) {
      line = this.blank(path);
      this.lines.set(path, line);
    }
    return line;
  }

  /**
   * A step of which nothing is known. Its node is its path without the numbers of rounds.
   * @param {string} path
   * @returns {StepLine}
   */
  blank(path) {
    const parts = path.split('/');
    const node = parts.filter((part) => !/^[0-9]+$/.test(part)).join('/');
    return {
      path, node, title: this.titles.get(node) ?? parts[parts.length - 1] ?? path, depth: parts.length - 1,
      attempts: [], since: Infinity, index: Infinity, running: null, text: '', retry: null, version: 0, error: null,
    };
  }

  /** @param {Step} step */
  take(step) {
    const line = this.line(step.step);
    if (line.attempts.some((one) => one.id === step.id)) return;
    line.attempts.push(step);
    line.attempts.sort((a, b) => seqOf(a.id) - seqOf(b.id));
    line.since = Math.min(line.since, Date.parse(step.created_at));
    line.index = Math.min(line.index, step.index);
    line.version += 1;
  }

  /** @param {Entry} entry */
  takeEntry(entry) {
    const body = entry.body ?? {};
    if (MARKS.includes(entry.kind)) this.marks.push(entry);
    switch (entry.kind) {
      case 'step_done': {
        const line = this.line(body.path);
        line.running = null;
        line.retry = body.retry?.at ?? null;
        const usage = { input: 0, output: 0, cost: 0, ...body.usage };
        this.take({
          id: entry.id, run: entry.run, step: body.path, index: body.index ?? 0, status: body.error ? 'failed' : 'completed',
          attempt: body.attempt ?? 1, created_at: body.started_at ?? entry.created_at, duration_ms: body.duration_ms ?? 0,
          input: body.input, output: body.output, error: body.error ?? null, undone: false,
          usage: { ...usage, total: usage.input + usage.output }, retry_at: line.retry,
        });
        this.refresh();
        break;
      }
      case 'effect_intent': {
        if (!body.path) break;
        this.running(body.path, entry.created_at);
        break;
      }
      case 'restored':
        this.loadSteps().catch(() => null);
        this.refresh();
        break;
      default:
        if (MARKS.includes(entry.kind)) this.refresh();
    }
    this.tell('steps');
    if (entry.checkpoint) this.tell('checkpoint');
  }

  /**
   * @param {string} path
   * @param {string} at
   */
  running(path, at) {
    const line = this.line(path);
    if (line.running) return;
    line.running = at;
    line.retry = null;
    line.text = '';
    line.since = Math.min(line.since, Date.parse(at));
    line.version += 1;
  }

  /** @param {any} event */
  takeLive(event) {
    const now = new Date().toISOString();
    switch (event.event) {
      case 'step_started':
        this.running(event.step, now);
        if (event.title) this.line(event.step).title = event.title;
        break;
      case 'step_text': {
        const line = this.line(event.step);
        line.text += event.text;
        line.version += 1;
        if (line.since === Infinity) line.since = Date.now();
        break;
      }
      case 'answer':
        this.answer += event.text;
        this.tell('answer');
        break;
      case 'step_finished':
      case 'step_failed': {
        const line = this.lines.get(event.step);
        if (line?.running) {
          line.running = null;
          line.error = event.error ?? null;
          line.version += 1;
        }
        break;
      }
      default:
        return;
    }
    this.tell('steps');
  }

  /** Tells the views, at most once a frame. @param {string} what */
  tell(what) {
    if (what !== 'steps') {
      this.dispatchEvent(new Event(what));
      return;
    }
    if (this.drawn) return;
    this.drawn = true;
    requestAnimationFrame(() => {
      this.drawn = false;
      this.sorted = [...this.lines.values()].filter((line) => line.since !== Infinity && !line.path.startsWith('#'))
        .sort((a, b) => a.since - b.since || a.depth - b.depth || a.index - b.index || (a.path < b.path ? -1 : 1));
      this.version += 1;
      this.dispatchEvent(new Event('steps'));
    });
  }

  stop() {
    this.ended = true;
    this.turn += 1;
    this.stopFollowing?.();
    this.stopDebug?.();
  }
}

/** The number of an entry. @param {string} id */
export const seqOf = (id) => Number(id.slice(id.lastIndexOf('@') + 1));

/**
 * How a step stands.
 * @param {StepLine} line
 * @param {WholeRun} run
 * @param {Set<string>} asked paths of open questions
 */
export function stepState(line, run, asked) {
  if (asked.has(line.path) || [...asked].some((path) => path.startsWith(`${line.path}#`))) return 'waiting';
  const last = line.attempts[line.attempts.length - 1];
  if (line.running) return run.stalled ? 'stalled' : 'running';
  if (!last) return line.error ? 'failed' : 'pending';
  if (last.undone) return 'undone';
  if (last.status === 'failed' && (line.retry ?? last.retry_at) && !OVER.includes(run.status)) return 'retrying';
  return last.status;
}
