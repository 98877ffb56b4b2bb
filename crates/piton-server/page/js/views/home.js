// Home: what needs a person at a glance, then the runs. The filters are in the address. The list follows the server: what
// is there changes in its place, and what is new comes on top unless the reader has gone on to older pages.

import { get } from '../api.js';
import { el, fill, keyed, say, settled } from '../dom.js';
import { follow } from '../live.js';
import { nothing, trouble } from '../notices.js';
import { address, refine, route } from '../router.js';
import { bulkBar } from './home-bulk.js';
import { figures } from './home-figures.js';
import { runRow } from './home-row.js';

/** @typedef {import('../types').ListedRun} ListedRun */

const PAGE = 50;
const KINDS = /** @type {[string, string][]} */ ([['', 'All kinds'], ['workflow', 'Workflows'], ['steps', 'Programs'], ['guard', 'Agent sessions'], ['embedded', 'Embedded'], ['workspace', 'Folders']]);
const TIMES = /** @type {[string, string][]} */ ([['', 'Any time'], ['1h', 'Last hour'], ['24h', 'Last day'], ['7d', 'Last week'], ['30d', 'Last month']]);
const WORK = 'workflow,steps,guard,embedded';

/** What the server is asked for. */
function wanted() {
  const { query } = route();
  const state = query.get('state') ?? '';
  const which = ['waiting', 'failed', 'stalled'].includes(state) ? state : '';
  return {
    which,
    status: which ? '' : state,
    kind: query.get('kind') || WORK,
    label: query.get('label'),
    text: query.get('text'),
    since: query.get('since'),
    limit: PAGE,
  };
}

/** The runs of the queue that were tried before and wait for another attempt. @returns {Promise<ListedRun[]>} */
async function retrying() {
  const { queue } = await get('/api/queue');
  return queue.filter((/** @type {ListedRun} */ run) => run.queue && run.queue.attempts > 0 && !run.queue.worker && run.status === 'queued');
}

/**
 * @param {import('../types').Session} session
 * @returns {Promise<import('../types').View>}
 */
export async function home(session) {
  const mayOperate = session.may.includes('operate');
  /** @type {ListedRun[]} */
  let runs = [];
  /** @type {string | null} */
  let next = null;
  let older = false;
  let asking = 0;
  let over = false;

  const top = figures((state) => refine({ state: state === (route().query.get('state') ?? '') ? null : state }, false));
  const list = el('ul', { class: 'runs', 'aria-label': 'Runs' });
  const foot = el('div', { class: 'list-foot' });
  const count = el('p', { class: 'hush', role: 'status' });
  const bulk = bulkBar(() => runs, () => { load(); loadSummary(); });

  const text = el('input', { type: 'search', id: 'search', placeholder: 'Search by name or id', 'aria-label': 'Search by name or id' });
  text.addEventListener('input', settled(() => refine({ text: text.value.trim() || null }), 250));
  const kind = chooser('Kind', KINDS, (value) => refine({ kind: value }));
  const since = chooser('Time', TIMES, (value) => refine({ since: value }));
  const label = el('input', { type: 'search', placeholder: 'Label', 'aria-label': 'Label', class: 'label-filter' });
  label.addEventListener('input', settled(() => refine({ label: label.value.trim() || null }), 250));

  function mark() {
    const { query } = route();
    if (document.activeElement !== text) text.value = query.get('text') ?? '';
    if (document.activeElement !== label) label.value = query.get('label') ?? '';
    kind.value = query.get('kind') ?? '';
    since.value = query.get('since') ?? '';
    top.mark(query.get('state') ?? '');
  }

  function draw() {
    keyed(list, runs, (run) => run.id, (run) => runRow(run, mayOperate ? bulk : null));
    say(count, `${runs.length} runs listed${next ? ', more are there' : ''}`);
    if (runs.length === 0) fill(foot, empty());
    else if (next) fill(foot, el('button', { class: 'button', type: 'button', onclick: more }, 'Show older'));
    else fill(foot);
    bulk.update();
  }

  async function load() {
    const mine = ++asking;
    try {
      const given = route().query.get('state') === 'retrying' ? { runs: await retrying(), next: null } : await get('/api/runs', wanted());
      if (mine !== asking || over) return;
      runs = given.runs;
      next = given.next;
      older = false;
      draw();
    } catch (error) {
      if (mine !== asking || over) return;
      if (runs.length === 0) fill(foot, trouble(error, load));
    }
  }

  async function more() {
    const mine = ++asking;
    try {
      const given = await get('/api/runs', { ...wanted(), cursor: next });
      if (mine !== asking || over) return;
      const had = new Set(runs.map((run) => run.id));
      runs = [...runs, ...given.runs.filter((/** @type {ListedRun} */ run) => !had.has(run.id))];
      next = given.next;
      older = true;
      draw();
    } catch (error) {
      fill(foot, trouble(error, more));
    }
  }

  async function loadSummary() {
    try {
      const given = await get('/api/summary');
      const again = given.queue ? await retrying() : [];
      if (!over) top.show(given, again.length);
    } catch {
      // The list says what is wrong; the figures stay as they were.
    }
  }

  /** A run moved: the list is asked for again, or, behind its first page, changed in its place. */
  const moved = settled(() => {
    loadSummary();
    if (!older) load();
  }, 400);
  let last = 0;
  const stop = follow('/api/changes', {
    run(run) {
      const place = runs.findIndex((one) => one.id === run.id);
      const had = runs[place];
      if (had) {
        runs[place] = { ...had, ...run, stalled: had.stalled && run.status === 'in_progress' && run.updated_at === had.updated_at };
        draw();
      }
      // A run that never rests must not keep the list from being asked for.
      if (Date.now() - last > 2000) {
        last = Date.now();
        if (!older) load();
        loadSummary();
      }
      moved();
    },
    gap: () => load(),
  }, { back: () => { load(); loadSummary(); } });
  const tick = setInterval(loadSummary, 15000);

  mark();
  await Promise.all([load(), loadSummary()]);

  const node = el('div', { class: 'stack large' },
    el('div', { class: 'page-head' },
      el('h1', null, 'Runs'),
      el('span', { class: 'push' }),
      mayOperate ? el('a', { class: 'button primary', href: address(['start']) }, 'Start a workflow') : null),
    top.node,
    el('section', { class: 'card', 'aria-label': 'All runs' },
      el('div', { class: 'filters', role: 'search' }, text, kind, since, label),
      mayOperate ? bulk.node : null, count, list, foot));

  return {
    node,
    title: 'Runs',
    refined() {
      mark();
      load();
    },
    stop() {
      over = true;
      stop();
      clearInterval(tick);
    },
  };
}

/**
 * @param {string} name
 * @param {[string, string][]} options
 * @param {(value: string) => void} chosen
 */
function chooser(name, options, chosen) {
  const node = el('select', { 'aria-label': name }, options.map(([value, word]) => el('option', { value }, word)));
  node.addEventListener('change', () => chosen(node.value));
  return node;
}

function empty() {
  const { query } = route();
  if ([...query.keys()].length > 0) {
    return nothing('No run fits these filters.',
      el('p', null, el('a', { href: address([]) }, 'Show all runs')));
  }
  return nothing('There are no runs yet.',
    el('p', null, 'Start a workflow here, or let a coding agent work under checkpoints:'),
    el('pre', { class: 'sample' }, 'piton run flow.yml -i topic=bees\npiton guard -- claude'));
}
