// Branching off: a new run that begins at a checkpoint of this one, with other inputs or variables if wanted. The run that
// it branches from stays as it is. Each value is edited as JSON, and only what was changed is sent.

import { Problem, get, ofRun, post } from '../api.js';
import { el, fill } from '../dom.js';
import { acting, dialog, nothing, notice, trouble } from '../notices.js';
import { shown } from '../parts.js';
import { clock } from '../words.js';
import { seqOf } from './model.js';

/** @typedef {{ name: string, before: string, input: HTMLTextAreaElement, wrong: HTMLElement }} Edit */

/**
 * @param {import('./model.js').RunModel} model
 * @param {string | null} at the checkpoint or entry to begin at
 * @param {(run: string) => void} made
 */
export function fork(model, at, made) {
  dialog('Fork this run', (close) => {
    /** @type {Edit[]} */
    let edits = [];
    const where = el('div');
    const place = el('select', { id: 'fork-at' });
    const values = el('div', { class: 'stack' });
    const id = el('input', { id: 'fork-id', type: 'text', placeholder: 'Made for you' });
    const idWrong = el('p', { class: 'field-wrong', role: 'alert', id: 'fork-id-wrong' });
    const goOn = el('input', { type: 'checkbox', id: 'fork-start', checked: true });
    let turn = 0;

    async function places() {
      const { checkpoints } = await get(ofRun(model.id, '/checkpoints'), { limit: 200 });
      const listed = checkpoints.filter((/** @type {import('../types').Entry} */ one) => !one.removed);
      if (at && !listed.some((/** @type {import('../types').Entry} */ one) => one.id === at)) {
        place.append(el('option', { value: at }, `${at}, behind this step`));
      }
      for (const one of listed) place.append(el('option', { value: one.id, selected: one.id === at }, `${one.id} · ${one.label || one.kind} · ${clock(one.created_at)}`));
      if (place.options.length === 0) {
        fill(values, nothing('This run has no checkpoint to begin at.'));
        return;
      }
      if (at) place.value = at;
      await edit();
    }

    async function edit() {
      const mine = ++turn;
      fill(values, el('p', { class: 'quiet loading' }, 'Loading what it holds…'));
      edits = [];
      const found = await editable(model, place.value);
      if (mine !== turn) return;
      edits = found.map(([name, value], number) => {
        const before = JSON.stringify(value, null, 1);
        const input = el('textarea', { id: `fork-value-${number}`, class: 'mono', spellcheck: 'false', rows: Math.min(8, before.split('\n').length), value: before, 'aria-describedby': `fork-wrong-${number}` });
        return { name, before, input, wrong: el('p', { class: 'field-wrong', role: 'alert', id: `fork-wrong-${number}` }) };
      });
      fill(values, edits.length === 0 ? el('p', { class: 'quiet' }, 'Nothing of it can be edited here: it begins with what it had.') : [
        el('h3', null, 'Inputs and variables'),
        el('p', { class: 'help' }, 'As JSON: a text in quotes. What you leave is taken along as it is.'),
        el('div', { class: 'edits' }, edits.map((one, number) => el('div', { class: 'field' }, el('label', { for: `fork-value-${number}`, class: 'mono' }, one.name), one.input, one.wrong)))]);
    }

    place.addEventListener('change', () => edit().catch((error) => fill(values, trouble(error))));
    places().catch((error) => fill(values, trouble(error)));

    return [
      el('p', null, 'A new run begins where this one stood. This one stays as it is; what its effects did is not done again.'),
      el('div', { class: 'field' }, el('label', { for: 'fork-at' }, 'Begins at'), place), values,
      el('div', { class: 'field' }, el('label', { for: 'fork-id' }, 'Name of the new run'), id, idWrong),
      el('label', { class: 'check', for: 'fork-start' }, goOn, el('span', null, 'Let it go on at once')),
      where,
      el('div', { class: 'actions' }, acting('Fork', async () => {
        fill(idWrong);
        const set = changed(edits);
        if (set === null) return;
        try {
          const given = await post(ofRun(model.id, '/fork'), { at: place.value || undefined, set, id: id.value.trim() || undefined, start: goOn.checked });
          close();
          notice(`Run ${given.run} branched off.`);
          made(given.run);
        } catch (error) {
          const field = error instanceof Problem ? error.field : null;
          const one = field?.startsWith('set.') ? edits.find((edit) => `set.${edit.name}` === field) : null;
          if (field === 'id') {
            fill(idWrong, /** @type {Error} */ (error).message);
            id.focus();
          } else if (one) {
            fill(one.wrong, /** @type {Error} */ (error).message);
            one.input.focus();
          } else {
            throw error;
          }
        }
      }, { kind: 'primary', where }), el('button', { class: 'button', type: 'button', onclick: close }, 'Back')),
    ];
  }, { wide: true });
}

/**
 * What was edited; nothing if something can't be read, which is then said at its field.
 * @param {Edit[]} edits
 */
function changed(edits) {
  /** @type {Record<string, unknown>} */
  const set = {};
  let good = true;
  for (const { name, before, input, wrong } of edits) {
    fill(wrong);
    input.removeAttribute('aria-invalid');
    if (input.value === before) continue;
    try {
      set[name] = JSON.parse(input.value);
    } catch {
      fill(wrong, 'This is no JSON. A text needs quotes: "like this".');
      input.setAttribute('aria-invalid', 'true');
      if (good) input.focus();
      good = false;
    }
  }
  return good ? set : null;
}

/**
 * What a fork at an entry can set: inputs by their name, fields of what steps gave as `step.field`, and variables of a
 * program.
 * @param {import('./model.js').RunModel} model
 * @param {string} at
 * @returns {Promise<[string, unknown][]>}
 */
async function editable(model, at) {
  const isWorkflow = model.run.kind === 'workflow';
  /** @type {import('../types').WholeEntry} */
  const created = await shown(`${model.id}@0`);
  const input = isWorkflow ? created.body?.input?.inputs : created.body?.input;
  /** @type {Map<string, unknown>} */
  const found = new Map(isObject(input) ? Object.entries(input) : []);
  if (!isWorkflow) {
    const state = (await shown(at)).state;
    if (isObject(state?.variables)) for (const [name, value] of Object.entries(state.variables)) found.set(name, value);
  }
  await model.known;
  for (const line of model.sorted) {
    const step = [...line.attempts].reverse().find((one) => one.status === 'completed' && !one.undone && seqOf(one.id) <= seqOf(at));
    if (!step || !isObject(step.output)) continue;
    const fields = Object.entries(step.output);
    // The start node gives the inputs on: they are set once.
    if (fields.every(([name, value]) => JSON.stringify(found.get(name)) === JSON.stringify(value))) continue;
    for (const [name, value] of fields) found.set(`${line.path}.${name}`, value);
  }
  return [...found].slice(0, 80);
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
