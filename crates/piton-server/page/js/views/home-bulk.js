// Several runs at once: retry, cancel or resume those that are ticked. What will happen to each is shown before it does,
// and what came of each after; one that can't be done keeps none of the others from it.

import { Problem, ofRun, post } from '../api.js';
import { el, fill, say } from '../dom.js';
import { acting, dialog, said } from '../notices.js';
import { chip, standing } from '../parts.js';
import { counted } from '../words.js';

/** @typedef {import('../types').ListedRun} ListedRun */
/** @typedef {'resume' | 'retry' | 'cancel'} Verb */

const WORDS = { resume: 'Resume', retry: 'Retry', cancel: 'Cancel' };
const FITS = {
  /** @param {ListedRun} run */
  resume: (run) => run.stalled || run.status === 'paused' || (run.status === 'queued' && !run.queue),
  /** @param {ListedRun} run */
  retry: (run) => run.status === 'failed',
  /** @param {ListedRun} run */
  cancel: (run) => ['queued', 'in_progress', 'paused', 'waiting'].includes(run.status),
};

/**
 * @param {() => ListedRun[]} listed
 * @param {() => void} done
 */
export function bulkBar(listed, done) {
  /** @type {Set<string>} */
  const chosen = new Set();
  const all = el('input', { type: 'checkbox', 'aria-label': 'Choose all that are listed', id: 'pick-all' });
  const words = el('label', { for: 'pick-all', class: 'quiet small' });
  const buttons = /** @type {Verb[]} */ (['resume', 'retry', 'cancel']).map((verb) => {
    const button = el('button', { class: 'button small', type: 'button', 'data-bulk': verb }, WORDS[verb]);
    button.addEventListener('click', () => ask(verb));
    return { verb, button };
  });
  const node = el('div', { class: 'bulk' }, el('span', { class: 'pick-cell' }, all), words, el('span', { class: 'push' }), buttons.map(({ button }) => button));

  const picked = () => listed().filter((run) => chosen.has(run.id));

  function update() {
    const runs = listed();
    const there = new Set(runs.map((run) => run.id));
    for (const id of chosen) if (!there.has(id)) chosen.delete(id);
    all.checked = runs.length > 0 && chosen.size === runs.length;
    all.indeterminate = chosen.size > 0 && chosen.size < runs.length;
    all.disabled = runs.length === 0;
    say(words, chosen.size === 0 ? 'Choose runs to resume, retry or cancel them together' : `${counted(chosen.size, 'run')} chosen`);
    for (const { verb, button } of buttons) button.disabled = !picked().some(FITS[verb]);
  }

  function redraw() {
    for (const box of document.querySelectorAll('.run-row .pick')) {
      const id = box.closest('.run-row')?.getAttribute('data-key') ?? '';
      /** @type {HTMLInputElement} */ (box).checked = chosen.has(id);
    }
    update();
  }

  all.addEventListener('change', () => {
    chosen.clear();
    if (all.checked) for (const run of listed()) chosen.add(run.id);
    redraw();
  });

  /** @param {Verb} verb */
  function ask(verb) {
    const runs = picked().filter(FITS[verb]);
    const passed = chosen.size - runs.length;
    dialog(`${WORDS[verb]} ${counted(runs.length, 'run')}`, (close) => {
      const rows = runs.map((run) => {
        const result = el('span', { class: 'small breaks' });
        return { run, result, node: el('li', { class: 'bulk-row' }, chip(standing(run)), el('span', { class: 'breaks' }, run.name || run.id, ' ', el('span', { class: 'mono quiet small' }, run.id)), result) };
      });
      const actions = el('div', { class: 'actions' });
      const act = acting(`${WORDS[verb]} ${counted(runs.length, 'run')}`, async () => {
        for (const { run, result } of rows) {
          say(result, '…');
          try {
            await one(verb, run.id);
            say(result, 'Done');
          } catch (error) {
            say(result, said(error));
            result.classList.add('bad');
            if (error instanceof Problem && error.hint) result.title = error.hint;
          }
        }
        chosen.clear();
        redraw();
        done();
        fill(actions, el('button', { class: 'button primary', type: 'button', onclick: close }, 'Close'));
      }, { kind: verb === 'cancel' ? 'danger' : 'primary' });
      actions.append(act, el('button', { class: 'button', type: 'button', onclick: close }, 'Back'));
      return [
        el('p', null, verb === 'cancel' ? 'These runs are given up for good. What they finished stays in their history.' :
          verb === 'retry' ? 'Each goes on from its last good checkpoint. What is finished is not done again.' :
          'Each goes on where it stands. A run of which something grave changed since is refused and stays as it is.'),
        passed > 0 ? el('p', { class: 'quiet' }, `${counted(passed, 'other')} among the chosen ${passed === 1 ? 'is' : 'are'} in a state that this does not fit.`) : null,
        el('ul', { class: 'bulk-rows' }, rows.map(({ node }) => node)), actions];
    });
  }

  return {
    node,
    update,
    /** @param {string} id */
    has: (id) => chosen.has(id),
    /** @param {string} id @param {boolean} on */
    set(id, on) {
      if (on) chosen.add(id);
      else chosen.delete(id);
      update();
    },
  };
}

/**
 * @param {Verb} verb
 * @param {string} run
 */
async function one(verb, run) {
  if (verb === 'resume') {
    await post(ofRun(run, '/resume'), {});
    return;
  }
  const plan = await post('/api/plans', { act: verb, run });
  await post(`/api/plans/${encodeURIComponent(plan.id)}/execute`, {});
}
