// A checkpoint in the line of a folder: when, by whom, and what for.

import { el } from '../dom.js';
import { since } from '../parts.js';
import { brief, clock, counted } from '../words.js';

/** @typedef {import('../types').Moment} Moment */

/** What each author is called, and the colour that it has. */
export const AUTHOR = /** @type {Record<string, [string, string]>} */ ({
  agent: ['Agent', 'running'], user: ['You', 'completed'], unattributed: ['Unattributed', 'stalled'], restore: ['Restore', 'paused'],
});

/**
 * @param {Moment} moment
 * @param {boolean} isOpen
 * @param {Moment | undefined} above the one above it in the list
 * @param {(id: string) => void} chosen
 */
export function momentRow(moment, isOpen, above, chosen) {
  const [author, colour] = AUTHOR[moment.made_by] ?? [moment.made_by, 'quiet'];
  const name = moment.description || moment.label || moment.tool || 'checkpoint';
  const more = [moment.tool, moment.author, moment.step].filter((one) => one && one !== name).join(' · ');
  const day = clock(moment.created_at, true).slice(0, 10);
  const isNewDay = !above || clock(above.created_at, true).slice(0, 10) !== day;
  const head = el('button', { class: 'moment-head', type: 'button', 'aria-pressed': String(isOpen), 'data-id': moment.id, onclick: () => chosen(moment.id) },
    el('span', { class: 'moment-line' }, el('b', { class: 'breaks' }, brief(name, 90)), el('span', { class: `author ${colour}` }, author),      el('span', { class: 'push' }), el('span', { class: 'quiet small' }, since(moment.created_at))),
    more ? el('span', { class: 'moment-more small quiet' }, brief(more, 140)) : null,
    moment.changes ? el('span', { class: 'moment-more small quiet' }, moment.changes.slice(0, 3).map((change) => change.path).join(', '), moment.changes.length > 3 ? ` and ${counted(moment.changes.length - 3, 'more')}` : '') : null);
  return el('li', { class: `moment ${colour}` },
    isNewDay ? el('span', { class: 'moment-day small quiet' }, day) : null,
    el('span', { class: 'moment-dot', 'aria-hidden': 'true' }), head);
}
