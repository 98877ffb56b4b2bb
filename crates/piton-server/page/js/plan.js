// A plan: what will happen, shown before it does. The server keeps the plan that was shown and carries out that one, or
// refuses because something moved since. Plans that change files show every file, its lines, and what is in the way.

import { get, post, remove } from './api.js';
import { el, fill } from './dom.js';
import { diffView } from './files/diff.js';
import { acting, dialog, nothing, trouble } from './notices.js';
import { counted } from './words.js';

/** @typedef {import('./types').Plan} Plan */

const ACTIONS = /** @type {Record<string, [string, string]>} */ ({
  create: ['A', 'Created'], write: ['M', 'Written'], delete: ['D', 'Deleted'], merge: ['⇄', 'Merged'], resolve: ['≠', 'Decided'],
});

/**
 * Asks the server for a plan, shows it, and carries it out if it is confirmed.
 * @param {string} title
 * @param {Record<string, unknown>} wanted
 * @param {{ label: string, kind?: string, done?: (result: any) => void, intro?: import('./dom.js').Children, extra?: HTMLElement | null }} options
 *   `extra` is shown above the plan; its `change` event with a `detail` asks for the plan anew with that added.
 */
export function planned(title, wanted, { label, kind = 'primary', done, intro, extra = null }) {
  /** @type {Plan | null} */
  let plan = null;
  let asked = { ...wanted };
  const shown = el('div', { class: 'stack' });
  const where = el('div');
  const actions = el('div', { class: 'actions' });

  const opened = dialog(title, () => [intro ? el('div', { class: 'stack' }, intro) : null, extra, shown, where, actions], {
    wide: true,
    closed: () => { if (plan) remove(`/api/plans/${encodeURIComponent(plan.id)}`).catch(() => null); },
  });

  async function ask() {
    fill(shown, el('p', { class: 'quiet loading' }, 'Looking what it would do…'));
    fill(actions);
    fill(where);
    if (plan) remove(`/api/plans/${encodeURIComponent(plan.id)}`).catch(() => null);
    plan = null;
    try {
      plan = await post('/api/plans', asked);
    } catch (error) {
      fill(shown, trouble(error, ask));
      return;
    }
    draw(/** @type {Plan} */ (plan));
  }

  /** @param {Plan} now */
  function draw(now) {
    const files = now.files;
    const isBlocked = blocked(now);
    const idle = files !== undefined && files !== null && files.changes.length === 0 && !isBlocked;
    fill(shown,
      el('p', { class: 'plan-line breaks' }, now.plan),
      now.entails.length > 0 && !files ? el('ul', { class: 'entails' }, now.entails.map((one) => el('li', { class: 'breaks' }, one))) : null,
      files ? filesOf(now) : null,
      idle ? nothing('There is nothing to change.', el('p', null, 'The files are as this would leave them.')) : null,
      isBlocked && ['undo', 'restore', 'redo'].includes(now.act) ? choices() : null);
    const act = acting(label, async () => {
      const result = await post(`/api/plans/${encodeURIComponent(now.id)}/execute`, {});
      plan = null;
      opened.close();
      done?.(result);
    }, { kind, where });
    act.hidden = isBlocked || idle;
    fill(actions, act, el('button', { class: 'button', type: 'button', onclick: () => opened.close() }, 'Back'));
  }

  /** @param {Plan} now */
  function filesOf(now) {
    const files = /** @type {import('./types').RestorePlan} */ (now.files);
    return [
      files.conflicts.length > 0 ? el('div', { class: blocked(now) ? 'trouble' : 'hint' },
        el('p', { class: blocked(now) ? 'trouble-title' : 'plan-line' }, `${counted(files.conflicts.length, 'conflict')}${blocked(now) ? ': nothing is written until they are decided' : ', decided as you said'}`),
        el('ul', null, files.conflicts.map((one) => el('li', { class: 'breaks' }, el('code', null, one.path), ' ', one.reason)))) : null,
      files.changes.length > 0 ? el('ul', { class: 'file-list', 'aria-label': 'Files that change' }, files.changes.map((change) => fileRow(now, change))) : null,
      files.unattributed.length > 0 ? el('div', { class: 'hint' },
        el('p', null, 'These changed while the agent was at work, but in none of its tool calls. They stay as they are:'),
        el('p', { class: 'mono small breaks' }, files.unattributed.join(', ')),
        now.act === 'undo' && !asked.unattributed ? el('button', { class: 'button small', type: 'button', onclick: () => { asked = { ...asked, unattributed: true }; ask(); } }, 'Take them back too') : null) : null,
      files.left.length > 0 ? el('details', null, el('summary', null, `${counted(files.left.length, 'path')} left as ${files.left.length === 1 ? 'it is' : 'they are'}`),
        el('ul', null, files.left.map((one) => el('li', { class: 'breaks small' }, el('code', null, one.path), ' ', one.reason)))) : null,
    ];
  }

  function choices() {
    const options = [
      ['current', 'Keep what is there', 'Paths that you changed since stay as they are; the rest is put back.'],
      ['checkpoint', 'Take the checkpoint’s', 'What is there is kept in a checkpoint made just before.'],
      ['markers', 'Merge with markers', 'Both sides are written, with markers where they disagree.'],
      ['beside', 'Put it beside', 'What is there stays; the checkpoint’s version comes beside it.'],
    ];
    return el('fieldset', { class: 'choices' }, el('legend', null, 'Decide the conflicts'), options.map(([value, name, help]) =>
      el('button', { class: 'choice', type: 'button', 'data-conflict': value, onclick: () => { asked = { ...asked, conflict: value }; ask(); } }, el('b', null, name), el('span', { class: 'quiet small' }, help))));
  }

  extra?.addEventListener('change', (event) => {
    if (event instanceof CustomEvent) {
      asked = { ...asked, ...event.detail };
      ask();
    }
  });
  ask();
}

/** Whether something is in the way of a plan. @param {Plan} plan */
const blocked = (plan) => plan.is_free === false;

/**
 * @param {Plan} plan
 * @param {{ path: string, action: string, added?: number, removed?: number }} change
 */
function fileRow(plan, change) {
  const [sign, word] = ACTIONS[change.action] ?? ['·', change.action];
  const body = el('div', { class: 'file-diff', hidden: true });
  const button = el('button', { class: 'file-head', type: 'button', 'aria-expanded': 'false' },
    el('span', { class: `sign ${change.action}`, title: word }, sign),
    el('span', { class: 'breaks mono' }, change.path),
    el('span', { class: 'hush' }, `, ${word}`),
    el('span', { class: 'push' }),
    lineCounts(change.added, change.removed));
  button.addEventListener('click', async () => {
    const open = body.hidden;
    body.hidden = !open;
    button.setAttribute('aria-expanded', String(open));
    if (!open || body.childElementCount > 0) return;
    fill(body, el('p', { class: 'quiet small padded' }, 'Loading…'));
    try {
      const { diff } = await get(`/api/plans/${encodeURIComponent(plan.id)}/diff`, { path: change.path });
      fill(body, diffView(diff));
    } catch (error) {
      fill(body, trouble(error));
    }
  });
  return el('li', null, button, body);
}

/**
 * @param {number | undefined} added
 * @param {number | undefined} removed
 */
export function lineCounts(added, removed) {
  if (added === undefined && removed === undefined) return null;
  return el('span', { class: 'line-counts num' }, el('span', { class: 'plus' }, `+${added ?? 0}`), ' ', el('span', { class: 'minus' }, `−${removed ?? 0}`));
}
