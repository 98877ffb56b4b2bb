// One step, opened: what went in, what came out, why it failed, each attempt, what it used, and the text that it is writing
// right now. From here a person tries again from this step, or branches off behind it.

import { el, fill, say } from '../dom.js';
import { icon } from '../icons.js';
import { nothing } from '../notices.js';
import { chip, copies, fact, shown, valueBox } from '../parts.js';
import { refine } from '../router.js';
import { clock, lasted, money, number } from '../words.js';
import { stepState } from './model.js';

/** @typedef {import('./model.js').RunModel} RunModel */
/** @typedef {import('./model.js').StepLine} StepLine */

/**
 * @param {RunModel} model
 * @param {{ retry: ((step: string) => void) | null, fork: ((at: string) => void) | null, undo: ((ref: string) => void) | null,
 *   debug: (step: string, hasRun: boolean) => HTMLElement | null }} acts
 */
export function detail(model, acts) {
  const node = el('section', { class: 'card detail', 'aria-label': 'Step' });
  /** @type {string | null} */
  let path = null;
  let attempt = -1;
  let stamp = '';
  /** @type {HTMLElement | null} */
  let stream = null;

  function empty() {
    stamp = 'empty';
    fill(node, nothing('No step is open.', el('p', null, 'Choose one in the timeline or the graph to see what went in and what came out.')));
  }

  /** @param {StepLine} line */
  function draw(line) {
    const state = stepState(line, model.run, new Set(model.questions.map((one) => one.step)));
    const tries = line.attempts;
    const which = attempt < 0 || attempt >= tries.length ? tries.length - 1 : attempt;
    const one = tries[which];
    const now = `${line.path}/${which}/${tries.length}/${state}/${one?.undone}/${model.debug !== null}/${line.title}`;
    if (now === stamp) {
      if (stream) write(line);
      return;
    }
    stamp = now;
    stream = el('pre', { class: 'stream', tabindex: '0', 'aria-label': 'Text as it comes' });
    const streamed = el('section', { class: 'value', hidden: true }, el('h3', { class: 'value-name' }, line.running ? 'Text as it comes' : 'Text as it came'), stream);
    fill(node,
      el('div', { class: 'detail-head' },
        el('div', { class: 'detail-title' }, el('h2', { class: 'breaks' }, line.title), chip(state)),
        el('p', { class: 'mono small quiet breaks' }, line.path, copies(line.path, 'the step’s name')),
        el('button', { class: 'icon-button close', type: 'button', 'aria-label': 'Close the step', onclick: () => { path = null; refine({ step: null }); empty(); } }, icon('close'))),
      tries.length > 1 ? attempts(line, which) : null,
      one ? el('dl', { class: 'facts' },
        fact('Began', clock(one.created_at)),
        fact('Took', lasted(one.duration_ms)),
        fact('Attempt', `${one.attempt} of ${tries.length}`),
        one.usage.total ? fact('Tokens', `${number(one.usage.input)} in, ${number(one.usage.output)} out`) : null,
        one.usage.cost ? fact('Cost', money(one.usage.cost)) : null) : null,
      one?.error ? el('div', { class: 'trouble' }, el('p', { class: 'trouble-title' }, one.retry_at ? 'This attempt failed and is tried again' : 'This attempt failed'), el('pre', { class: 'breaks' }, one.error)) :
        line.error ? el('div', { class: 'trouble' }, el('pre', { class: 'breaks' }, line.error)) : null,
      one?.undone ? el('p', { class: 'hint' }, 'The run was put back to before this step: it counts no more.') : null,
      streamed,
      one ? valueBox('Input', one.input, { bytes: one.input_bytes, load: async () => (await shown(one.id)).input ?? bodyOf(await shown(one.id), 'input') }) : null,
      one && !one.error ? valueBox('Output', one.output, { bytes: one.output_bytes, load: async () => (await shown(one.id)).output ?? bodyOf(await shown(one.id), 'output') }) : null,
      !one && line.running ? el('p', { class: 'quiet' }, 'It is at work. What it was given and what it gives show up here when it ends.') : null,
      one && !one.undone ? el('div', { class: 'actions' },
        acts.retry && !model.debug ? el('button', { class: 'button', type: 'button', onclick: () => acts.retry?.(line.path) }, 'Retry from here') : null,
        acts.fork ? el('button', { class: 'button', type: 'button', onclick: () => acts.fork?.(one.id) }, 'Fork behind it') : null,
        acts.undo && model.run.kind === 'guard' ? el('button', { class: 'button', type: 'button', onclick: () => acts.undo?.(`${model.id}/${line.path}`) }, 'Undo its files') : null) : null,
      acts.debug(line.path, tries.some((one) => !one.undone)));
    write(line);
  }

  /** @param {StepLine} line */
  function write(line) {
    if (!stream) return;
    const section = /** @type {HTMLElement} */ (stream.parentElement);
    section.hidden = line.text === '';
    if (line.text === '') return;
    const atEnd = stream.scrollTop + stream.clientHeight >= stream.scrollHeight - 20;
    say(stream, line.text);
    if (atEnd) stream.scrollTop = stream.scrollHeight;
  }

  /**
   * @param {StepLine} line
   * @param {number} which
   */
  function attempts(line, which) {
    return el('div', { class: 'attempts', role: 'group', 'aria-label': 'Attempts' }, line.attempts.map((one, place) => {
      const button = el('button', { class: 'button small', type: 'button', 'aria-pressed': String(place === which) },
        `${place + 1} · ${one.undone ? 'taken back' : one.status} · ${lasted(one.duration_ms)}`);
      button.addEventListener('click', () => {
        attempt = place;
        draw(line);
      });
      return button;
    }));
  }

  /** @param {string} step */
  function notBegun(step) {
    stamp = `${step}/${model.debug !== null}`;
    fill(node, nothing('This step has not begun.', el('p', null, el('code', null, step), ' shows up here as soon as it does.')), acts.debug(step, false));
  }

  function update() {
    const line = path === null ? null : model.lines.get(path);
    if (line) draw(line);
    else if (path !== null && stamp !== `${path}/${model.debug !== null}`) notBegun(path);
  }

  model.addEventListener('steps', update);
  model.addEventListener('run', update);
  model.addEventListener('debug', update);
  empty();

  return {
    node,
    /** @param {string} step */
    open(step) {
      if (path !== step) attempt = -1;
      path = step;
      stamp = '';
      const line = model.lines.get(step);
      if (line) draw(line);
      else notBegun(step);
    },
    opened: () => path,
  };
}

/** An entry's own field, where the server shows the entry and not the step. @param {any} entry @param {string} name */
const bodyOf = (entry, name) => entry.body?.[name] ?? null;
