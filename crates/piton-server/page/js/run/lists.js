// The checkpoints and the log of a run, as lists that open. What an entry says is loaded when it is opened.

import { get, ofRun } from '../api.js';
import { el, fill } from '../dom.js';
import { nothing, trouble } from '../notices.js';
import { shown, since, valueBox } from '../parts.js';
import { clock } from '../words.js';

/** @typedef {import('../types').Entry} Entry */

const KIND = /** @type {Record<string, string>} */ ({
  created: 'Created', claimed: 'Taken up by a process', state_changed: 'State', step_done: 'Step', effect_intent: 'Effect begun', effect_receipt: 'Effect ended',
  answer: 'Answered', checkpoint: 'Checkpoint', restored: 'Put back', asked: 'Question', requested: 'Request', logged: 'Log', removed: 'Checkpoints removed',
  files_restored: 'Files put back', indexed: 'Index',
});
const PART = /** @type {Record<string, string>} */ ({ engine: 'engine', variables: 'variables', conversation: 'conversation', workspace: 'files' });

/**
 * @param {string} run
 * @param {{ fork: ((at: string) => void) | null, putBack: () => ((at: string) => void) | null,
 *   back: (() => ((at: string) => void) | null) }} acts `putBack` and `back`, which the debugger does, are what can be done now.
 */
export function checkpointList(run, acts) {
  const list = el('ul', { class: 'entries' });
  const node = el('section', { class: 'card', 'aria-label': 'Checkpoints' }, list);
  async function load() {
    try {
      const [putBack, back] = [acts.putBack(), acts.back()];
      const { checkpoints } = await get(ofRun(run, '/checkpoints'), { limit: 200 });
      fill(list, checkpoints.length === 0
        ? el('li', null, nothing('There are no checkpoints yet.', el('p', null, 'One is made after each agent, before each question, after nodes marked ', el('code', null, 'checkpoint: true'), ' and when the run is stopped.')))
        : checkpoints.map((/** @type {Entry} */ one) => entryRow(one, el('span', { class: 'actions inline' },
          one.removed ? el('span', { class: 'quiet small' }, 'Removed by retention') : null,
          acts.fork && !one.removed ? el('button', { class: 'button small', type: 'button', onclick: () => acts.fork?.(one.id) }, 'Fork') : null,
          back && !one.removed && !one.undone ? el('button', { class: 'button small', type: 'button', onclick: () => back(one.id) }, 'Back to here') : null,
          putBack && !back && !one.removed && !one.undone ? el('button', { class: 'button small', type: 'button', onclick: () => putBack(one.id) }, 'Put back') : null))));
    } catch (error) {
      fill(list, el('li', null, trouble(error, load)));
    }
  }
  return { node, load };
}

/** @param {string} run */
export function logList(run) {
  const list = el('ul', { class: 'entries' });
  const foot = el('div', { class: 'list-foot' });
  const node = el('section', { class: 'card', 'aria-label': 'Log' }, list, foot);
  let limit = 100;
  async function load() {
    try {
      const { entries } = await get(ofRun(run, '/log'), { limit });
      fill(list, entries.map((/** @type {Entry} */ one) => entryRow(one, null)));
      fill(foot, entries.length >= limit && limit < 500 ? el('button', { class: 'button', type: 'button', onclick: () => { limit = 500; load(); } }, 'Show older') : null);
    } catch (error) {
      fill(list, el('li', null, trouble(error, load)));
    }
  }
  return { node, load };
}

/**
 * @param {Entry} entry
 * @param {HTMLElement | null} actions
 */
function entryRow(entry, actions) {
  const body = el('div', { class: 'entry-body', hidden: true });
  const opener = el('button', { class: 'entry-head', type: 'button', 'aria-expanded': 'false' },
    el('span', { class: 'mono small entry-seq' }, `@${entry.seq}`),
    el('span', { class: 'entry-kind' }, KIND[entry.kind] ?? entry.kind),
    el('span', { class: 'entry-label breaks' }, entry.label),
    entry.checkpoint ? el('span', { class: 'entry-parts quiet small' }, Object.keys(entry.parts).map((part) => PART[part] ?? part).join(', ')) : null,
    entry.undone ? el('span', { class: 'chip quiet' }, 'Taken back') : null,
    el('span', { class: 'push' }), el('span', { class: 'quiet small', title: clock(entry.created_at, true) }, since(entry.created_at)));
  opener.addEventListener('click', async () => {
    const open = body.hidden;
    body.hidden = !open;
    opener.setAttribute('aria-expanded', String(open));
    if (!open || body.childElementCount > 0) return;
    fill(body, el('p', { class: 'quiet small' }, 'Loading…'));
    try {
      const whole = await shown(entry.id);
      fill(body, 'state' in whole && Object.keys(whole.state).length > 0
        ? Object.entries(whole.state).map(([part, value]) => valueBox(PART[part] ?? part, value)) : null,
        valueBox('Says', whole.body ?? whole));
    } catch (error) {
      fill(body, trouble(error));
    }
  });
  return el('li', { class: entry.undone ? 'entry undone' : 'entry' }, el('div', { class: 'entry-line' }, opener, actions), body);
}
