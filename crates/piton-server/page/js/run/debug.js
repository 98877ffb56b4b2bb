// The debugger of a run that this server drives: where it stands, what it goes on to, its breakpoints and its variables. The
// session is the server's: a page that is closed doesn't end it, and every page on the run shows the same. What a command
// came to, or why it can't be done, is said where it was given.

import { Problem, ofRun, post } from '../api.js';
import { el, fill, say, settled } from '../dom.js';
import { acting, notice, trouble } from '../notices.js';
import { chip, valueBox } from '../parts.js';
import { brief } from '../words.js';

/** @typedef {import('../types').Stop} Stop */
/** @typedef {import('../types').Breakpoint} Breakpoint */

const WHY = /** @type {Record<string, string>} */ ({
  initial: 'where it begins', breakpoint: 'at a breakpoint', error: 'because it failed', reached: 'as you said', step: 'after a step',
  back: 'where it was put back to', completed: 'It is completed', failed: 'It failed', waiting: 'It waits for an answer', paused: 'It was paused from elsewhere',
});
/** Scopes that are no node's: they come last. */
const OWN = ['sys', 'env', 'conversation'];
const KEPT = 'piton.stops.';

/**
 * Where a run stopped last time in this window, to begin with again.
 * @param {string} run
 * @returns {{ breakpoints: Breakpoint[], on_error: boolean }}
 */
export function keptStops(run) {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT + run) ?? '') ?? { breakpoints: [], on_error: false };
  } catch {
    return { breakpoints: [], on_error: false };
  }
}

/**
 * @param {import('./model.js').RunModel} model
 * @param {boolean} operates
 * @param {(run: string) => void} turned the run went back from its end, and goes on as this one
 */
export function debugPanel(model, operates, turned) {
  const state = chip('paused', 'Stands');
  const at = el('p', { class: 'debug-at', role: 'status' });
  const where = el('div');
  const said = el('div', { class: 'stack' });
  const names = el('datalist', { id: 'debug-nodes' });

  const buttons = operates ? [
    button('continue', 'Continue', { command: 'continue' }, 'To the next breakpoint', 'primary'),
    button('step', 'Step', { command: 'step' }, 'To the next side of a node: before it, after it'),
    button('next', 'Next node', { command: 'next' }, 'To before the next node'),
    button('back', 'Back', { command: 'back' }, 'To before the step that ended last'),
    button('quit', 'Leave', { command: 'quit' }, 'The run is paused where it stands'),
  ] : [];
  const to = field('debug-to', 'Run to', { list: 'debug-nodes', placeholder: 'Node' });
  const run = el('form', { class: 'debug-line', novalidate: true }, to.node, el('button', { class: 'button', type: 'submit', 'data-debug': 'to' }, 'Run to it'));
  submits(run, to, () => command({ command: 'to', node: to.input.value.trim() }));

  const node = field('debug-node', 'Node', { list: 'debug-nodes' });
  const side = el('select', { id: 'debug-side', 'aria-label': 'Side' }, el('option', { value: 'before' }, 'before'), el('option', { value: 'after' }, 'after'));
  const when = field('debug-if', 'Only if', { placeholder: 'fetch.status > 299' });
  const stops = el('ul', { class: 'stops' });
  const onError = el('input', { type: 'checkbox', id: 'debug-error' });
  onError.addEventListener('change', () => tried(where, () => command({ command: 'on_error', on: onError.checked })));
  const add = el('form', { class: 'debug-line', novalidate: true }, el('div', { class: 'field' }, el('label', { for: 'debug-side' }, 'Stop'), side), node.node, when.node,
    el('button', { class: 'button', type: 'submit', 'data-debug': 'break' }, 'Add'));
  submits(add, node, async () => {
    when.wrong('');
    try {
      await command({ command: 'break', node: node.input.value.trim(), phase: side.value, if: when.input.value.trim() || undefined });
    } catch (error) {
      // What isn't said of the node is said of the condition.
      if (!(error instanceof Problem) || error.field === 'node' || when.input.value.trim() === '') throw error;
      when.wrong(words(error));
      when.input.focus();
      return;
    }
    node.input.value = '';
    when.input.value = '';
  });

  const find = el('input', { type: 'search', placeholder: 'Find a variable', 'aria-label': 'Find a variable' });
  find.addEventListener('input', settled(() => drawVariables(), 120));
  const variables = el('div', { class: 'variables' });
  const other = field('debug-set', 'Variable', { placeholder: 'node.variable', class: 'mono' });
  const value = field('debug-value', 'Value', { placeholder: '"a text", 12, {"a": 1}', class: 'mono' });
  const set = el('form', { class: 'debug-line', novalidate: true }, other.node, value.node, el('button', { class: 'button', type: 'submit', 'data-debug': 'set' }, 'Set'));
  submits(set, other, async () => {
    value.wrong('');
    if (await assign(other.input.value.trim(), value.input.value, value)) {
      other.input.value = '';
      value.input.value = '';
    }
  });

  const body = el('div', { class: 'debug-body' },
    el('section', { class: 'stack', 'aria-label': 'Breakpoints' }, el('h3', null, 'Breakpoints'), stops, operates ? add : null,
      el('label', { class: 'check', for: 'debug-error' }, onError, el('span', null, 'Stop after nodes that fail')),
      operates ? run : null),
    operates ? el('section', { class: 'stack', 'aria-label': 'Variables' }, el('div', { class: 'debug-find' }, el('h3', null, 'Variables'), find), variables, set) : null);
  const panel = el('section', { class: 'card debug', 'aria-label': 'Debugger', hidden: true }, names,
    el('div', { class: 'debug-head' }, el('h2', null, 'Debugger'), state, at, el('span', { class: 'push' }), el('div', { class: 'actions' }, buttons)),
    where, said, body);
  onError.disabled = !operates;

  /** @type {Record<string, unknown>} */
  let known = {};
  /** @type {Set<string>} */
  const open = new Set();
  let stamp = '';
  let shownStop = '';
  let turn = 0;

  /** @param {string} id @param {string} name @param {Record<string, unknown>} says @param {string} title @param {string} [kind] */
  function button(id, name, says, title, kind = '') {
    const node = acting(name, () => command(says), { kind, where, title });
    node.dataset.debug = id;
    return node;
  }

  /** @param {Record<string, unknown>} says */
  async function command(says) {
    const reply = await post(ofRun(model.id, '/debug/commands'), says);
    if (reply.answer === 'goes_back') {
      fill(said, el('div', { class: 'hint' }, el('p', null, 'Back to ', el('b', null, reply.to), '.'), el('ul', { class: 'entails' }, reply.entails.map((/** @type {string} */ one) => el('li', null, one)))));
    } else if (reply.answer === 'quits') {
      notice('The run is left where it stands.');
    }
    return reply;
  }

  /**
   * @param {string} name
   * @param {string} text
   * @param {{ wrong: (text: string) => void, input: HTMLElement }} place
   */
  async function assign(name, text, place) {
    /** @type {unknown} */
    let given;
    try {
      given = JSON.parse(text);
    } catch {
      place.wrong('This is no JSON. A text needs quotes: "like this".');
      place.input.focus();
      return false;
    }
    await command({ command: 'set', variables: { [name]: given } });
    notice(`${name} is set.`);
    return true;
  }

  async function look() {
    const mine = ++turn;
    const seen = model.debug;
    if (!seen?.standing || !seen.stop?.phase || !operates) {
      known = {};
      fill(variables, el('p', { class: 'quiet small' }, seen?.standing ? 'It stands at no node, so there are none to look at.' : 'They show when the run stands.'));
      return;
    }
    try {
      const reply = await post(ofRun(model.id, '/debug/commands'), { command: 'variables' });
      if (mine !== turn) return;
      known = reply.variables;
      drawVariables();
    } catch (error) {
      if (mine === turn) fill(variables, trouble(error));
    }
  }

  function drawVariables() {
    const wanted = find.value.trim().toLowerCase();
    const scopes = Object.entries(known).filter(([, values]) => values !== null && typeof values === 'object' && Object.keys(values).length > 0)
      .sort(([a], [b]) => Number(OWN.includes(a)) - Number(OWN.includes(b)));
    fill(variables, scopes.map(([scope, values]) => {
      const fits = Object.entries(/** @type {Record<string, unknown>} */ (values)).filter(([name]) => `${scope}.${name}`.toLowerCase().includes(wanted));
      return fits.length === 0 ? null : el('div', { class: 'scope' }, el('h4', { class: 'mono breaks' }, scope), fits.map(([name, value]) => variable(`${scope}.${name}`, name, value)));
    }));
    if (variables.childElementCount === 0) fill(variables, el('p', { class: 'quiet small' }, wanted ? 'No variable fits.' : 'There are none yet.'));
  }

  /** @param {string} path @param {string} name @param {unknown} value */
  function variable(path, name, value) {
    const editor = el('div', { class: 'variable-editor', hidden: !open.has(path) });
    const opener = el('button', { class: 'variable-head', type: 'button', 'aria-expanded': String(open.has(path)), 'data-variable': path },
      el('span', { class: 'variable-name' }, name), el('span', { class: 'one-line mono quiet' }, brief(value, 200)));
    const draw = () => {
      if (editor.childElementCount > 0) return;
      const text = el('textarea', { class: 'mono', spellcheck: 'false', rows: Math.min(10, JSON.stringify(value, null, 1).split('\n').length), value: JSON.stringify(value, null, 1), 'aria-label': path, 'aria-describedby': `wrong-${path}` });
      const wrong = el('p', { class: 'field-wrong', role: 'alert', id: `wrong-${path}` });
      const place = { input: text, wrong: (/** @type {string} */ why) => invalid(text, wrong, why) };
      const problem = el('div');
      fill(editor, text, wrong, problem, el('div', { class: 'actions' }, acting('Set', async () => {
        place.wrong('');
        if (await assign(path, text.value, place)) open.delete(path);
      }, { where: problem, kind: 'small' })));
    };
    opener.addEventListener('click', () => {
      if (open.has(path)) open.delete(path);
      else open.add(path);
      editor.hidden = !open.has(path);
      opener.setAttribute('aria-expanded', String(open.has(path)));
      draw();
      if (!editor.hidden) editor.querySelector('textarea')?.focus();
    });
    if (open.has(path)) draw();
    return el('div', { class: 'variable' }, opener, editor);
  }

  function drawStops() {
    const seen = model.debug;
    if (!seen) return;
    onError.checked = seen.on_error;
    fill(stops, seen.breakpoints.length === 0 ? el('li', { class: 'quiet small' }, 'None. It stops where it is told to, and at its end.') : seen.breakpoints.map((one) =>
      el('li', { class: 'stop' }, el('span', { class: 'stop-sign', 'aria-hidden': 'true' }), el('span', { class: 'breaks' }, `${one.phase} `, el('b', { class: 'mono' }, one.node), one.if ? [' if ', el('code', null, one.if)] : null),
        operates ? el('button', { class: 'link-button small push', type: 'button', 'aria-label': `Remove the breakpoint ${one.phase} ${one.node}`, onclick: () => tried(where, () => command({ command: 'clear', node: one.node })) }, 'Remove') : null)));
  }

  function draw() {
    const seen = model.debug;
    panel.hidden = !seen;
    if (!seen) {
      stamp = '';
      return;
    }
    const { stop } = seen;
    if (stop?.run && stop.run !== model.id) {
      turned(stop.run);
      return;
    }
    state.to(seen.standing ? 'paused' : 'running', seen.standing ? 'Stands' : 'At work');
    fill(at, seen.standing && stop ? sentence(stop) : 'It goes on until it stops again.');
    const ends = !stop?.phase && stop?.reason === 'completed';
    for (const one of buttons) {
      const name = one.dataset.debug ?? '';
      one.disabled = !seen.standing || (ends && ['continue', 'step', 'next'].includes(name));
    }
    for (const form of [run, set]) for (const one of form.querySelectorAll('button')) one.disabled = !seen.standing || (form === set && !stop?.phase);
    const now = JSON.stringify([seen.breakpoints, seen.on_error]);
    if (now !== stamp) {
      stamp = now;
      drawStops();
      try {
        sessionStorage.setItem(KEPT + model.id, JSON.stringify({ breakpoints: seen.breakpoints, on_error: seen.on_error }));
      } catch {
        // Storage is switched off: they hold as long as the session.
      }
    }
    if (String(seen.number) !== shownStop) {
      shownStop = String(seen.number);
      if (seen.standing && stop) {
        if (stop.error) fill(said, el('div', { class: 'trouble' }, el('p', { class: 'trouble-title' }, stop.phase ? 'The node failed' : 'The run failed'), el('pre', { class: 'breaks' }, stop.error)));
        else if (stop.phase === 'after') fill(said, valueBox('It gave', stop.gave));
        else if (stop.reason !== 'back') fill(said);
      } else if (!said.querySelector('.hint')) {
        // What going back entails may have been said already.
        fill(said);
      }
      look();
    }
  }

  model.addEventListener('debug', draw);
  model.loadGraph().then((graph) => fill(names, nodesOf(graph).map((one) => el('option', { value: one.id }, one.title))), () => null);
  draw();

  return {
    node: panel,
    /**
     * What can be told the debugger of a step.
     * @param {string} step
     * @param {boolean} hasRun
     * @returns {HTMLElement | null}
     */
    acts(step, hasRun) {
      const seen = model.debug;
      if (!seen || !operates) return null;
      const id = step.slice(step.lastIndexOf('/') + 1);
      const problem = el('div');
      const act = (/** @type {string} */ name, /** @type {Record<string, unknown>} */ says) => acting(name, async () => { await command(says); }, { where: problem, kind: 'small' });
      return el('div', { class: 'stack', 'data-of': 'debugger' }, el('div', { class: 'actions' },
        act('Stop before it', { command: 'break', node: id, phase: 'before' }), act('Stop after it', { command: 'break', node: id, phase: 'after' }),
        act('Run to it', { command: 'to', node: id }),
        hasRun ? act('Back to before it', { command: 'back', to: step }) : null), problem);
    },
    /** Puts the run back behind an entry. @param {string} entry */
    back: (entry) => command({ command: 'back', to: entry }),
  };
}

/** Where a run stands, in words. @param {Stop} stop */
function sentence(stop) {
  const why = WHY[stop.reason] ?? stop.reason;
  if (!stop.phase) {
    return stop.reason === 'waiting' ? [why, ': answer it, then continue.'] : stop.reason === 'completed' ? [why, '. Back goes back in a new run.'] : [why, '. Continue tries it again.'];
  }
  return [stop.phase === 'before' ? 'Before ' : 'After ', el('b', null, stop.title ?? stop.node ?? ''), ' ', el('code', null, stop.step ?? ''), ` (${stop.type ?? 'node'}), ${why}`];
}

/**
 * All nodes, those inside others too.
 * @param {import('../types').Graph} graph
 * @returns {import('../types').GraphNode[]}
 */
const nodesOf = (graph) => graph.nodes.flatMap((one) => [one, ...(one.inside ? nodesOf(one.inside) : [])]);

/**
 * A text field with its message.
 * @param {string} id
 * @param {string} label
 * @param {Record<string, any>} more
 */
function field(id, label, more) {
  const input = el('input', { type: 'text', id, 'aria-describedby': `${id}-wrong`, autocomplete: 'off', ...more });
  const wrong = el('p', { class: 'field-wrong', id: `${id}-wrong`, role: 'alert' });
  return {
    input, node: el('div', { class: 'field' }, el('label', { for: id }, label), input, wrong),
    /** @param {string} text */
    wrong: (text) => invalid(input, wrong, text),
  };
}

/**
 * @param {HTMLElement} input
 * @param {HTMLElement} wrong
 * @param {string} text
 */
function invalid(input, wrong, text) {
  say(wrong, text);
  if (text) input.setAttribute('aria-invalid', 'true');
  else input.removeAttribute('aria-invalid');
}

/** @param {Problem} error */
const words = (error) => [error.detail ? `${error.message}: ${error.detail}` : error.message, error.hint?.replaceAll('`', '')].filter(Boolean).join(' – ');

/**
 * Does what a form says when it is sent; what is wrong is said at its field.
 * @param {HTMLFormElement} form
 * @param {ReturnType<typeof field>} at
 * @param {() => Promise<unknown>} act
 */
function submits(form, at, act) {
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    at.wrong('');
    if (at.input.value.trim() === '') {
      at.wrong('It is needed.');
      at.input.focus();
      return;
    }
    try {
      await act();
    } catch (error) {
      at.wrong(error instanceof Problem ? words(error) : String(error));
      at.input.focus();
    }
  });
}

/**
 * @param {HTMLElement} where
 * @param {() => Promise<unknown>} act
 */
async function tried(where, act) {
  fill(where);
  try {
    await act();
  } catch (error) {
    fill(where, trouble(error));
  }
}
