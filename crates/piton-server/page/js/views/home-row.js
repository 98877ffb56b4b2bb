// One run in the list of Home: what it is, how it stands, and why it needs somebody, if it does.

import { el, fill, say } from '../dom.js';
import { chip, since, standing } from '../parts.js';
import { address } from '../router.js';
import { brief, lasted, money, tokens } from '../words.js';

/** @typedef {import('../types').ListedRun} ListedRun */

/** What people call each kind of run. */
export const KIND = /** @type {Record<string, string>} */ ({
  workflow: 'Workflow', steps: 'Program', guard: 'Agent session', embedded: 'Embedded', workspace: 'Folder',
});

/**
 * @param {ListedRun} first
 * @param {{ has: (id: string) => boolean, set: (id: string, on: boolean) => void } | null} choice
 */
export function runRow(first, choice) {
  const state = chip(standing(first));
  const name = el('a', { class: 'run-name', href: address(['runs', first.id]) });
  const id = el('span', { class: 'run-id mono' });
  const why = el('p', { class: 'run-why breaks' });
  const when = el('span', { class: 'run-when' });
  const took = el('span', { class: 'run-took num' });
  const used = el('span', { class: 'run-used num' });
  const box = choice ? el('input', { type: 'checkbox', class: 'pick', 'aria-label': `Choose ${first.name || first.id}` }) : null;
  box?.addEventListener('change', () => choice?.set(first.id, box.checked));
  let stamp = '';

  /** @param {ListedRun} run */
  function update(run) {
    state.to(standing(run));
    say(name, run.name || run.id);
    say(id, run.short || run.id);
    id.title = run.id;
    const reason = run.error ?? run.question ?? run.queue?.problem ?? '';
    say(why, brief(reason, 220));
    why.hidden = reason === '';
    if (stamp !== run.created_at) fill(when, since(run.created_at));
    stamp = run.created_at;
    say(took, lasted(run.duration_ms));
    const usage = run.usage;
    say(used, !usage?.total ? '' : `${tokens(usage.total)} tokens${usage.cost ? ` · ${money(usage.cost)}` : ''}`);
    if (box) box.checked = choice?.has(run.id) ?? false;
  }
  update(first);

  return Object.assign(
    el('li', { class: 'run-row' },
      box ? el('span', { class: 'pick-cell' }, box) : null,
      state,
      el('div', { class: 'run-what' },
        el('div', { class: 'run-title' }, name, el('span', { class: 'run-kind' }, KIND[first.kind] ?? first.kind), id),
        why),
      el('div', { class: 'run-figures' }, used, took, when)),
    { update });
}
