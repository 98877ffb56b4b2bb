// A question as a form. What the question says it wants decides the fields; what is wrong with an answer is said at its
// field, by the server's rules, and the focus goes there. Values are sent as what they are: a number as a number.

import { Problem, ofRun, post } from '../api.js';
import { el, fill } from '../dom.js';
import { acting, notice } from '../notices.js';
import { since } from '../parts.js';

/** @typedef {import('../types').Question} Question */
/** @typedef {import('../types').Field} Field */
/** @typedef {{ name: string, node: HTMLElement, read: () => unknown, wrong: (text: string) => void, focus: () => void }} Control */

const OPTION = /** @type {Record<string, string>} */ ({
  done: 'It was done', not_done: 'It was not done: do it now', give_up: 'Give this step up',
});

let forms = 0;

/**
 * @param {string} run
 * @param {Question} question
 * @param {{ may: boolean, uncertain: boolean, answered: () => void }} options
 */
export function questionForm(run, question, { may, uncertain, answered }) {
  forms += 1;
  const prefix = `answer-${forms}`;
  const where = el('div');
  const controls = question.fields.map((field) => control(field, `${prefix}-${field.name}`, uncertain));
  const free = controls.length === 0 && !question.approval
    ? control({ name: '', label: 'Answer', type: 'any', required: false, options: [], default: null }, `${prefix}-free`, false) : null;

  /** @param {Record<string, unknown>} more */
  async function send(more) {
    for (const one of controls) one.wrong('');
    free?.wrong('');
    /** @type {Record<string, unknown>} */
    const answer = {};
    for (const one of controls) {
      const value = one.read();
      if (value !== undefined) answer[one.name] = value;
    }
    const said = free ? free.read() : undefined;
    const whole = said !== undefined ? said : { ...answer, ...more };
    try {
      await post(ofRun(run, '/answer'), { step: question.step, answer: whole, resume: true });
    } catch (error) {
      if (!(error instanceof Problem) || !error.field) throw error;
      // Several fields may be wrong, each for a reason of its own.
      const wrong = error.problems.length > 0 ? error.problems : [{ field: error.field, message: error.detail ? `${error.message}: ${error.detail}` : error.message }];
      /** @type {Control | null} */
      let first = null;
      for (const { field, message } of wrong) {
        const name = field.replace(/^answer\.?/, '');
        const control = controls.find((one) => one.name === name) ?? free;
        control?.wrong(message);
        first ??= control;
      }
      if (!first) throw error;
      first.focus();
      return;
    }
    notice('The answer is in the log.');
    answered();
  }

  const approval = question.approval && !question.fields.some((field) => field.name === 'approved');
  const buttons = approval
    ? [acting('Approve', () => send({ approved: true }), { kind: 'primary', where }), acting('Reject', () => send({ approved: false }), { kind: 'danger', where })]
    : [acting(uncertain ? 'Decide' : 'Answer', () => send({}), { kind: 'primary', where })];

  const form = el('form', { class: 'stack', novalidate: true },
    controls.map((one) => one.node), free?.node ?? null, where, may ? el('div', { class: 'actions' }, buttons) : el('p', { class: 'quiet' }, 'Your role may look, not answer.'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (may && !approval) buttons[0]?.click();
  });

  return el('section', { class: 'card question', 'aria-label': uncertain ? 'Undecided effect' : 'Question', 'data-step': question.step },
    el('p', { class: 'question-kind' }, uncertain ? 'Did this happen? Only you can tell.' : 'This run waits for you'),
    el('h2', null, question.title || question.step),
    question.prompt ? el('p', { class: 'question-text' }, question.prompt) : null,
    question.timeout_at ? el('p', { class: 'quiet small' }, 'Stops waiting ', since(question.timeout_at)) : null,
    question.problem ? el('p', { class: 'hint', role: 'alert' }, 'The last answer did not fit: ', question.problem) : null,
    form);
}

/**
 * The control of one field.
 * @param {Field} field
 * @param {string} id
 * @param {boolean} uncertain
 * @returns {Control}
 */
function control(field, id, uncertain) {
  const wrong = el('p', { class: 'field-wrong', id: `${id}-wrong`, role: 'alert' });
  const common = { id, name: field.name, 'aria-describedby': `${id}-wrong`, 'aria-required': field.required ? 'true' : null };
  const label = field.label || words(field.name);
  const name = el('label', { for: id }, label, field.required ? el('span', { class: 'required', title: 'required' }, ' *') : null);
  /** @type {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} */
  let input;
  /** @type {() => unknown} */
  let read;
  const given = field.default;

  if (field.options.length > 0) {
    const place = field.options.findIndex((option) => JSON.stringify(option) === JSON.stringify(given));
    input = el('select', common, el('option', { value: '' }, 'Choose…'),
      field.options.map((option, at) => el('option', { value: String(at), selected: at === place }, uncertain ? (OPTION[String(option)] ?? text(option)) : text(option))));
    read = () => (input.value === '' ? undefined : field.options[Number(input.value)]);
  } else if (['boolean', 'checkbox', 'bool'].includes(field.type)) {
    input = el('select', common, el('option', { value: '' }, 'Choose…'),
      el('option', { value: 'true', selected: given === true }, 'Yes'), el('option', { value: 'false', selected: given === false }, 'No'));
    read = () => (input.value === '' ? undefined : input.value === 'true');
  } else if (['number', 'integer'].includes(field.type)) {
    input = el('input', { ...common, type: 'text', inputmode: 'decimal', value: given === null || given === undefined ? '' : String(given) });
    read = () => {
      const typed = input.value.trim();
      return typed === '' ? undefined : Number.isFinite(Number(typed)) ? Number(typed) : typed;
    };
  } else if (['paragraph', 'object', 'array', 'any', 'json'].includes(field.type) || field.type.startsWith('array')) {
    const isText = field.type === 'paragraph';
    input = el('textarea', { ...common, rows: 4, spellcheck: 'false', class: isText ? null : 'mono', value: given === null || given === undefined ? '' : text(given) });
    read = () => (input.value === '' ? undefined : isText ? input.value : parsed(input.value));
  } else {
    input = el('input', { ...common, type: 'text', value: given === null || given === undefined ? '' : text(given) });
    read = () => (input.value === '' ? undefined : input.value);
  }

  return {
    name: field.name,
    node: el('div', { class: 'field' }, name, input, wrong),
    read,
    wrong(words) {
      fill(wrong, words);
      if (words) input.setAttribute('aria-invalid', 'true');
      else input.removeAttribute('aria-invalid');
    },
    focus: () => input.focus(),
  };
}

/** @param {unknown} value */
const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value));

/** JSON where it is JSON, and text otherwise. @param {string} typed */
function parsed(typed) {
  try {
    return JSON.parse(typed);
  } catch {
    return typed;
  }
}

/** A name as people would write it. @param {string} name */
function words(name) {
  const spaced = name.replaceAll('_', ' ');
  return spaced.charAt(0).toUpperCase() + spaced.slice(1);
}
