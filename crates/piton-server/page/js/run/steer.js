// Steering a run: stop it, cancel it, go on with it, try again from a step, put its state back. What an act would do is
// shown before it is done; a resume shows what changed since the run was begun, and what of that is grave.

import { get, ofRun, post } from '../api.js';
import { el, fill } from '../dom.js';
import { acting, dialog, notice, trouble } from '../notices.js';
import { planned } from '../plan.js';
import { stateWord } from '../words.js';

/** @typedef {import('./model.js').RunModel} RunModel */

const SEVERITY = /** @type {Record<string, [string, string]>} */ ({
  danger: ['failed', 'Grave'], warning: ['waiting', 'Mind this'], info: ['running', 'To know'],
});

/** @param {RunModel} model */
export function stop(model) {
  dialog('Stop this run', (close) => {
    const where = el('div');
    const reason = el('input', { id: 'stop-reason', type: 'text', placeholder: 'For the log' });
    const grace = el('input', { id: 'stop-grace', type: 'text', inputmode: 'numeric', value: '30', class: 'short' });
    const wrong = el('p', { class: 'field-wrong', role: 'alert' });
    return [
      el('p', null, 'Nothing new is begun, what runs may finish, and a checkpoint is saved. It can go on at any time.'),
      el('div', { class: 'field' }, el('label', { for: 'stop-reason' }, 'Reason'), reason),
      el('div', { class: 'field' }, el('label', { for: 'stop-grace' }, 'Seconds for what runs to finish'), grace, wrong),
      where,
      el('div', { class: 'actions' }, acting('Stop it', async () => {
        fill(wrong);
        const seconds = Number(grace.value);
        if (!Number.isInteger(seconds) || seconds < 0) {
          fill(wrong, 'A whole number of seconds, 0 or more.');
          grace.focus();
          return;
        }
        const given = await post(ofRun(model.id, '/stop'), { reason: reason.value.trim() || undefined, grace_s: seconds });
        close();
        told(given);
        model.refresh();
      }, { kind: 'primary', where }), el('button', { class: 'button', type: 'button', onclick: close }, 'Back')),
    ];
  });
}

/** @param {RunModel} model */
export function cancel(model) {
  planned('Cancel this run', { act: 'cancel', run: model.id }, {
    label: 'Cancel it for good',
    kind: 'danger',
    intro: el('p', null, 'A cancelled run never goes on. Its history and checkpoints stay, and it can be forked.'),
    done(result) {
      told(result);
      model.refresh();
    },
  });
}

/**
 * @param {RunModel} model
 * @param {{ breakpoints: import('../types').Breakpoint[], on_error: boolean } | null} [stops] under a debugger, which stops there
 */
export function resume(model, stops = null) {
  const label = stops ? 'Debug' : 'Resume';
  /** @param {boolean} force */
  const goOn = (force) => (stops ? post(ofRun(model.id, '/debug'), { stops, force }) : post(ofRun(model.id, '/resume'), { force }));
  dialog(stops ? 'Debug this run' : 'Resume this run', (close) => {
    const intro = stops ? el('p', null, 'It goes on here and stands before the next node. You say how far it goes from there.') : null;
    const shown = el('div', { class: 'stack' }, el('p', { class: 'quiet loading' }, 'Looking what changed since it was begun…'));
    const where = el('div');
    const actions = el('div', { class: 'actions' });
    diagnose(model.id).then(({ node, refused, lost }) => {
      const force = el('input', { type: 'checkbox', id: 'force' });
      fill(shown, node, refused && !lost ? el('label', { class: 'check', for: 'force' }, force, el('span', null, 'Go on all the same. Each change is written to the audit log.')) : null);
      const act = acting(label, async () => {
        const given = await goOn(force.checked);
        close();
        notice(given?.notice || 'The run goes on.');
        model.refresh();
      }, { kind: 'primary', where });
      if (refused) {
        act.setAttribute('aria-disabled', 'true');
        force.addEventListener('change', () => (force.checked ? act.removeAttribute('aria-disabled') : act.setAttribute('aria-disabled', 'true')));
      }
      fill(actions, act, el('button', { class: 'button', type: 'button', onclick: close }, 'Back'));
    }, (error) => {
      fill(shown, trouble(error));
      const act = acting(label, async () => {
        await goOn(false);
        close();
        notice('The run goes on.');
        model.refresh();
      }, { kind: 'primary', where });
      fill(actions, error?.kind === 'refused' ? null : act, el('button', { class: 'button', type: 'button', onclick: close }, 'Back'));
    });
    return [intro, shown, where, actions];
  });
}

/**
 * What changed since a run was begun, as a list.
 * @param {string} run
 */
async function diagnose(run) {
  /** @type {import('../types').Explained} */
  const given = await get(ofRun(run, '/resume'));
  const lost = (given.impact?.lost.length ?? 0) > 0;
  const lists = /** @type {[string, string[]][]} */ (given.impact ? [
    ['Nodes that changed', given.impact.changed],
    ['Finished, and still as good', given.impact.valid],
    ['Finished, but would come to something else now', given.impact.outdated],
    ['Gone from the document though the run needs them', given.impact.lost],
  ] : []);
  const node = el('div', { class: 'stack' },
    given.changes.length === 0 ? el('p', { class: 'good' }, 'Nothing that matters changed since this run was begun.') :
      el('ul', { class: 'changes' }, given.changes.map((change) => {
        const [colour, word] = SEVERITY[change.severity.toLowerCase()] ?? ['quiet', change.severity];
        return el('li', null, el('span', { class: `chip ${colour}` }, el('span', { class: 'dot', 'aria-hidden': 'true' }), word), el('span', { class: 'breaks' }, el('b', null, change.component.replaceAll('_', ' ')), ' ', change.description));
      })),
    lists.some(([, nodes]) => nodes.length > 0) ? el('dl', { class: 'facts wide' }, lists.filter(([, nodes]) => nodes.length > 0).map(([name, nodes]) => el('div', { class: 'fact' }, el('dt', null, name), el('dd', { class: 'breaks' }, nodes.join(', '))))) : null,
    given.refused ? el('p', { class: 'trouble' }, lost ? 'It can’t go on with this document.' : 'As it is, it would be refused.') : null);
  return { node, refused: given.refused, lost };
}

/**
 * @param {RunModel} model
 * @param {string | null} from
 * @param {(run: string) => void} branched
 */
export async function retry(model, from, branched) {
  await model.known;
  const steps = [...new Set(model.sorted.filter((line) => line.attempts.some((one) => !one.undone)).map((line) => line.path))];
  const failed = model.sorted.filter((line) => line.attempts[line.attempts.length - 1]?.status === 'failed').map((line) => line.path);
  const select = el('select', { id: 'retry-from' },
    el('option', { value: '' }, failed.length > 0 ? `Where it failed (${failed[failed.length - 1]})` : 'Where it stands'),
    steps.slice(-500).map((step) => el('option', { value: step, selected: step === from }, step)));
  const extra = el('div', { class: 'field' }, el('label', { for: 'retry-from' }, 'From'), select,
    el('p', { class: 'help' }, 'This step and all behind it run again. What is before it counts and is not done again.'));
  select.addEventListener('change', (event) => {
    event.stopPropagation();
    extra.dispatchEvent(new CustomEvent('change', { detail: { from: select.value || undefined } }));
  });
  planned('Retry', { act: 'retry', run: model.id, from: from ?? undefined }, {
    label: 'Retry',
    extra,
    done(result) {
      notice('The run is tried again.');
      if (result?.run && result.run !== model.id) branched(result.run);
      else model.refresh();
    },
  });
}

/**
 * @param {RunModel} model
 * @param {string} to
 */
export function putBack(model, to) {
  planned('Put the state back', { act: 'put_back', to }, {
    label: 'Put it back',
    kind: 'danger',
    intro: el('p', null, 'The run stands where it stood at ', el('code', null, to), '. What came after counts no more, and stays in the history. Files are not touched.'),
    done() {
      notice(`The run stands at ${to}.`);
      model.refresh();
    },
  });
}

/** @param {{ status?: string | null, request?: string }} given */
function told({ status, request }) {
  notice(request === 'asked' ? 'The process that drives it was asked.' : request === 'already' ? `It was ${stateWord(status ?? '').toLowerCase()} already.` : `It is ${stateWord(status ?? '').toLowerCase()} now.`);
}
