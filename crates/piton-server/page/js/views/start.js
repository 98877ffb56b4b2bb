// Starting a workflow: its document, its inputs, a name. The document is checked as it is typed; what is wrong with it is
// listed with its line, and what is wrong with an input is said at that input.

import { Problem, post } from '../api.js';
import { el, fill, settled } from '../dom.js';
import { acting, notice } from '../notices.js';
import { address, go } from '../router.js';
import { counted } from '../words.js';

/** @returns {Promise<import('../types').View>} */
export async function start() {
  const where = el('div');
  const found = el('div', { role: 'status' });
  const document = el('textarea', { id: 'document', class: 'mono tall', spellcheck: 'false', 'aria-describedby': 'document-wrong document-help', placeholder: 'nodes:\n  - { id: start, data: { type: start, title: Start } }\n  …' });
  const documentWrong = el('p', { class: 'field-wrong', id: 'document-wrong', role: 'alert' });
  const file = el('input', { type: 'file', id: 'file', accept: '.yml,.yaml,.json' });
  const name = el('input', { type: 'text', id: 'name', value: 'workflow.yml', 'aria-describedby': 'name-wrong' });
  const nameWrong = el('p', { class: 'field-wrong', id: 'name-wrong', role: 'alert' });
  const inputs = el('textarea', { id: 'inputs', class: 'mono', rows: 4, spellcheck: 'false', 'aria-describedby': 'inputs-wrong inputs-help', value: '{}' });
  const inputsWrong = el('p', { class: 'field-wrong', id: 'inputs-wrong', role: 'alert' });
  const id = el('input', { type: 'text', id: 'id', placeholder: 'Made for you', 'aria-describedby': 'id-wrong' });
  const idWrong = el('p', { class: 'field-wrong', id: 'id-wrong', role: 'alert' });
  const labels = el('input', { type: 'text', id: 'labels', placeholder: 'nightly, team-a' });
  const queued = el('input', { type: 'checkbox', id: 'queued' });
  const debugs = acting('Debug', async () => { await begin(true); }, { where, title: 'It starts here and stands before its first node' });
  queued.addEventListener('change', () => { debugs.disabled = queued.checked; });
  let turn = 0;

  /** @param {{ message: string, line: number | null, node: string | null, hint: string | null }[]} problems @param {string} title */
  const listed = (problems, title) => el('div', { class: 'trouble' }, el('p', { class: 'trouble-title' }, title),
    el('ul', null, problems.slice(0, 30).map((one) => el('li', { class: 'breaks small' }, one.line ? el('b', null, `Line ${one.line}: `) : null, one.message, one.hint ? el('span', { class: 'quiet' }, ` ${one.hint}`) : null))));

  const check = settled(async () => {
    const mine = ++turn;
    if (document.value.trim() === '') {
      fill(found);
      return;
    }
    try {
      const report = await post('/api/documents/check', { document: document.value, name: name.value });
      if (mine !== turn) return;
      fill(found, report.valid ? el('p', { class: 'good small' }, `It can be run: ${counted(report.nodes, 'node')}.`) : listed(report.errors, `${counted(report.errors.length, 'problem')} in the document`),
        report.warnings.length > 0 ? el('ul', { class: 'hint' }, report.warnings.slice(0, 10).map((/** @type {any} */ one) => el('li', { class: 'small breaks' }, one.message))) : null);
    } catch {
      // The start says what is wrong.
      fill(found);
    }
  }, 500);
  document.addEventListener('input', check);
  file.addEventListener('change', async () => {
    const [one] = file.files ?? [];
    if (!one) return;
    name.value = one.name;
    document.value = await one.text();
    check();
  });

  /** @param {boolean} debugged */
  async function begin(debugged) {
    for (const wrong of [documentWrong, inputsWrong, idWrong, nameWrong]) fill(wrong);
    for (const field of [document, inputs, id, name]) field.removeAttribute('aria-invalid');
    const bad = (/** @type {HTMLElement} */ field, /** @type {HTMLElement} */ wrong, /** @type {string} */ words) => {
      fill(wrong, words);
      field.setAttribute('aria-invalid', 'true');
      field.focus();
    };
    if (document.value.trim() === '') return bad(document, documentWrong, 'Choose a file, or write the document here.');
    /** @type {unknown} */
    let given;
    try {
      given = JSON.parse(inputs.value || '{}');
    } catch {
      return bad(inputs, inputsWrong, 'This is no JSON: write it as {"topic": "bees"}.');
    }
    if (given === null || typeof given !== 'object' || Array.isArray(given)) return bad(inputs, inputsWrong, 'Inputs have names: write them as {"topic": "bees"}.');
    try {
      const run = await post('/api/runs', {
        document: document.value, name: name.value.trim() || 'workflow.yml', inputs: given, id: id.value.trim() || undefined,
        labels: labels.value.split(',').map((one) => one.trim()).filter(Boolean), submit: queued.checked ? {} : undefined, debug: debugged ? {} : undefined,
      });
      notice(`Run ${run.run} is on its way.`);
      go(address(['runs', run.run]));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.problems.length > 0) {
        fill(found, listed(error.problems, error.message));
        return bad(document, documentWrong, error.message);
      }
      const words = error.detail ? `${error.message}: ${error.detail}` : error.message;
      if (error.field?.startsWith('inputs')) return bad(inputs, inputsWrong, words);
      if (error.field === 'document') return bad(document, documentWrong, words);
      if (error.field === 'name') return bad(name, nameWrong, words);
      if (error.field === 'id') return bad(id, idWrong, words);
      throw error;
    }
  }

  return {
    title: 'Start a workflow',
    node: el('div', { class: 'stack large middle' },
      el('p', { class: 'crumbs small' }, el('a', { href: address([]) }, 'Runs'), el('span', { class: 'quiet' }, ' / ')),
      el('h1', null, 'Start a workflow'),
      el('section', { class: 'card padded stack', 'aria-label': 'Workflow' },
        el('div', { class: 'field' }, el('label', { for: 'file' }, 'File'), file),
        el('div', { class: 'field' }, el('label', { for: 'document' }, 'Document'), document, documentWrong, el('p', { class: 'help', id: 'document-help' }, 'YAML or JSON, as Dify and xworkflow write it.')), found,
        el('div', { class: 'field' }, el('label', { for: 'inputs' }, 'Inputs'), inputs, inputsWrong, el('p', { class: 'help', id: 'inputs-help' }, 'As JSON, one entry for each variable of the start node.')),
        el('div', { class: 'sides' },
          el('div', { class: 'field' }, el('label', { for: 'name' }, 'File name'), name, nameWrong),
          el('div', { class: 'field' }, el('label', { for: 'id' }, 'Name of the run'), id, idWrong),
          el('div', { class: 'field' }, el('label', { for: 'labels' }, 'Labels'), labels)),
        el('label', { class: 'check', for: 'queued' }, queued, el('span', null, 'Leave it to a worker, instead of running it in this server')),
        where, el('div', { class: 'actions' }, acting('Start', async () => { await begin(false); }, { kind: 'primary', where }), debugs, el('a', { class: 'button', href: address([]) }, 'Back')))),
  };
}
