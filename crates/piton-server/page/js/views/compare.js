// Two runs side by side: how each came out, the steps of both by name with what differs, and the values that differ. The
// addresses of both are in the address, so a comparison can be sent to a colleague.

import { get, ofRun } from '../api.js';
import { el, fill, settled } from '../dom.js';
import { dialog, nothing, trouble } from '../notices.js';
import { chip, since, standing, valueBox } from '../parts.js';
import { address, go, route } from '../router.js';
import { brief, counted, lasted, money, number } from '../words.js';

/** @typedef {import('../types').WholeRun} WholeRun */
/** @typedef {import('../types').Step} Step */

/** @returns {Promise<import('../types').View>} */
export async function compare() {
  const { query } = route();
  const from = query.get('from') ?? '';
  const to = query.get('to') ?? '';
  const [a, b, difference, stepsA, stepsB] = await Promise.all([
    get(ofRun(from)), get(ofRun(to)), get('/api/diff/runs', { from, to }),
    get(ofRun(from, '/steps'), { limit: 500 }), get(ofRun(to, '/steps'), { limit: 500 }),
  ]);
  return {
    title: 'Compare',
    node: el('div', { class: 'stack large' },
      el('p', { class: 'crumbs small' }, el('a', { href: address([]) }, 'Runs'), el('span', { class: 'quiet' }, ' / ')),
      el('div', { class: 'page-head' }, el('h1', null, 'Two runs side by side'), el('span', { class: 'push' }),
        el('a', { class: 'button', href: address(['compare'], { from: to, to: from }) }, 'Swap')),
      el('div', { class: 'sides' }, side(a, 'Left'), side(b, 'Right')),
      stepTable(stepsA.steps, stepsB.steps),
      values(difference.changes)),
  };
}

/**
 * @param {WholeRun} run
 * @param {string} name
 */
function side(run, name) {
  return el('section', { class: 'card padded stack', 'aria-label': `${name}: ${run.id}` },
    el('div', { class: 'page-head' }, el('h2', { class: 'breaks' }, el('a', { href: address(['runs', run.id]) }, run.name || run.id)), chip(standing(run))),
    el('p', { class: 'mono small quiet breaks' }, run.id),
    el('dl', { class: 'facts' },
      el('div', { class: 'fact' }, el('dt', null, 'Created'), el('dd', null, since(run.created_at))),
      el('div', { class: 'fact' }, el('dt', null, 'Took'), el('dd', { class: 'num' }, lasted(run.duration_ms))),
      el('div', { class: 'fact' }, el('dt', null, 'Tokens'), el('dd', { class: 'num' }, number(run.usage.total))),
      el('div', { class: 'fact' }, el('dt', null, 'Cost'), el('dd', { class: 'num' }, money(run.usage.cost)))),
    run.error ? el('pre', { class: 'trouble breaks' }, run.error) : null,
    run.outputs !== null ? valueBox('Outputs', run.outputs) : null);
}

/**
 * @param {Step[]} left newest first
 * @param {Step[]} right
 */
function stepTable(left, right) {
  const last = (/** @type {Step[]} */ steps) => {
    /** @type {Map<string, Step>} */
    const found = new Map();
    for (const step of [...steps].reverse()) if (!step.undone) found.set(step.step, step);
    return found;
  };
  const [a, b] = [last(left), last(right)];
  const paths = [...new Set([...a.keys(), ...b.keys()])];
  const same = (/** @type {Step | undefined} */ one, /** @type {Step | undefined} */ other) =>
    one !== undefined && other !== undefined && one.status === other.status && one.error === other.error &&
    one.output_bytes === other.output_bytes && JSON.stringify(one.output) === JSON.stringify(other.output);
  const rows = paths.map((path) => {
    const [one, other] = [a.get(path), b.get(path)];
    const equal = same(one, other);
    return el('tr', { class: equal ? 'equal' : 'differs' },
      el('th', { scope: 'row', class: 'mono breaks' }, path), cell(one), cell(other),
      el('td', { class: 'small' }, equal ? el('span', { class: 'quiet' }, 'Same') : el('b', null, one === undefined ? 'Only right' : other === undefined ? 'Only left' : 'Differs')));
  });
  return el('section', { class: 'card', 'aria-label': 'Steps of both' },
    el('div', { class: 'filters' }, el('h2', null, 'Steps')),
    rows.length === 0 ? nothing('Neither has steps yet.') : el('div', { class: 'table-frame', tabindex: '0', role: 'group', 'aria-label': 'Steps of both' }, el('table', { class: 'table compare' },
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Step'), el('th', { scope: 'col' }, 'Left'), el('th', { scope: 'col' }, 'Right'), el('th', { scope: 'col' }, 'Result'))),
      el('tbody', null, rows))));
}

/** @param {Step | undefined} step */
function cell(step) {
  if (!step) return el('td', { class: 'quiet' }, '–');
  return el('td', null, el('div', { class: 'cell-head' }, chip(step.status), el('span', { class: 'quiet small num' }, lasted(step.duration_ms))),
    el('div', { class: 'mono small breaks' }, brief(step.error ?? step.output ?? '', 160)));
}

/** @param {import('../types').ValueChange[]} changes */
function values(changes) {
  return el('section', { class: 'card', 'aria-label': 'Values that differ' },
    el('div', { class: 'filters' }, el('h2', null, 'Values'), el('span', { class: 'quiet small' }, counted(changes.length, 'difference'))),
    changes.length === 0 ? nothing('No value differs.') : el('div', { class: 'table-frame', tabindex: '0', role: 'group', 'aria-label': 'Values that differ' }, el('table', { class: 'table compare' },
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Where'), el('th', { scope: 'col' }, 'Left'), el('th', { scope: 'col' }, 'Right'))),
      el('tbody', null, changes.slice(0, 300).map((change) => el('tr', null, el('th', { scope: 'row', class: 'mono breaks' }, change.path),
        el('td', { class: 'mono small breaks old' }, 'old' in change ? brief(change.old, 300) : '–'),
        el('td', { class: 'mono small breaks new' }, 'new' in change ? brief(change.new, 300) : '–')))))));
}

/**
 * Asks with which other run one is to be compared.
 * @param {string} id
 */
export function chooseOther(id) {
  dialog('Compare with another run', (close) => {
    const list = el('ul', { class: 'choose-list' });
    const text = el('input', { type: 'search', id: 'compare-text', placeholder: 'Name or id' });
    async function load() {
      const wanted = text.value.trim();
      try {
        const { runs } = await get('/api/runs', { text: wanted, limit: 20, kind: 'workflow,steps,guard,embedded' });
        // An answer that is late says nothing of what is wanted now.
        if (wanted !== text.value.trim()) return;
        const others = runs.filter((/** @type {import('../types').ListedRun} */ run) => run.id !== id);
        fill(list, others.length === 0 ? el('li', null, nothing('There is no other run.', el('p', null, 'Fork this one, and compare the two.'))) :
          others.map((/** @type {import('../types').ListedRun} */ run) => el('li', null, el('button', { class: 'choice row', type: 'button', onclick: () => { close(); go(address(['compare'], { from: id, to: run.id })); } },
            chip(standing(run)), el('span', { class: 'breaks' }, el('b', null, run.name || run.id), ' ', el('span', { class: 'mono small quiet' }, run.id)), el('span', { class: 'push' }), since(run.created_at)))));
      } catch (error) {
        fill(list, el('li', null, trouble(error)));
      }
    }
    text.addEventListener('input', settled(load, 250));
    load();
    return [el('div', { class: 'field' }, el('label', { for: 'compare-text' }, 'Find it'), text), list];
  });
}
