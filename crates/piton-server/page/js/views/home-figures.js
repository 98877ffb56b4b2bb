// The figures of Home: how many runs are in which state, each a filter; what was spent today; how full the store is.
// Their places are there from the beginning, so that nothing moves when the figures come.

import { el, say } from '../dom.js';
import { counted, money, number, size, stateColour, stateWord, tokens } from '../words.js';

const SHOWN = ['in_progress', 'waiting', 'failed', 'stalled', 'retrying', 'paused', 'queued', 'completed'];

/** @param {(state: string) => void} chosen */
export function figures(chosen) {
  const cards = new Map(SHOWN.map((state) => {
    const value = el('span', { class: 'figure-value num' }, '–');
    const button = el('button', { class: `figure ${stateColour(state)}`, type: 'button', 'aria-pressed': 'false', 'data-state': state },
      value, el('span', { class: 'figure-name' }, el('span', { class: 'dot', 'aria-hidden': 'true' }), stateWord(state)));
    button.addEventListener('click', () => chosen(state));
    return [state, { button, value }];
  }));

  const spend = el('dd', { class: 'num' }, '–');
  const used = el('dd', { class: 'num' }, '–');
  const begun = el('dd', { class: 'num' }, '–');
  const disk = el('span', null, '–');
  const meter = el('progress', { class: 'meter', max: 100, value: 0, 'aria-label': 'Disk use of the budget', hidden: true });

  const node = el('div', { class: 'overview' },
    el('div', { class: 'figures', role: 'group', 'aria-label': 'Runs by state' }, [...cards.values()].map(({ button }) => button)),
    el('dl', { class: 'today card' },
      el('div', null, el('dt', null, 'Spend today'), spend),
      el('div', null, el('dt', null, 'Tokens today'), used),
      el('div', null, el('dt', null, 'Active today'), begun),
      el('div', null, el('dt', null, 'Disk'), el('dd', { class: 'num' }, disk, meter))));

  return {
    node,
    /**
     * @param {import('../types').Summary} summary
     * @param {number} retrying
     */
    show({ counts, stalled, today, bytes, budget }, retrying) {
      for (const [state, { button, value }] of cards) {
        const count =
          state === 'stalled' ? stalled :
          state === 'retrying' ? retrying :
          state === 'in_progress' ? Math.max(0, (counts[state] ?? 0) - stalled) : (counts[state] ?? 0);
        say(value, number(count));
        button.classList.toggle('none', count === 0);
      }
      say(spend, money(today.usage.cost));
      say(used, tokens(today.usage.total));
      used.title = `${number(today.usage.input)} in, ${number(today.usage.output)} out`;
      say(begun, today.more ? `over ${counted(today.runs, 'run')}` : counted(today.runs, 'run'));
      say(disk, budget ? `${size(bytes)} of ${size(budget)}` : size(bytes));
      meter.hidden = !budget;
      if (budget) meter.value = Math.min(100, (bytes / budget) * 100);
    },
    /** @param {string} state */
    mark(state) {
      for (const [name, { button }] of cards) button.setAttribute('aria-pressed', String(name === state));
    },
  };
}
