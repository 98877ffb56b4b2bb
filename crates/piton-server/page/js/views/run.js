// A run: what it is and how it stands, what it asks, its graph and its timeline with each step, its checkpoints and its log.
// The page follows it; what a person may do now, and only that, stands at the top.

import { line } from '../api.js';
import { el, fill, say } from '../dom.js';
import { notice } from '../notices.js';
import { planned } from '../plan.js';
import { chip, copies, fact, since, standing, tabs, valueBox } from '../parts.js';
import { address, go, refine, route } from '../router.js';
import { debugPanel, keptStops } from '../run/debug.js';
import { checkpointList, logList } from '../run/lists.js';
import { detail } from '../run/detail.js';
import { fork } from '../run/fork.js';
import { graphView } from '../run/graph.js';
import { RunModel } from '../run/model.js';
import { questionForm } from '../run/question.js';
import { cancel, putBack, resume, retry, stop } from '../run/steer.js';
import { waterfall } from '../run/waterfall.js';
import { lasted, money, number, tokens } from '../words.js';
import { chooseOther } from './compare.js';
import { KIND } from './home-row.js';

const TABS = [{ id: 'steps', name: 'Steps' }, { id: 'checkpoints', name: 'Checkpoints' }, { id: 'log', name: 'Log' }];

/**
 * @param {string} id
 * @param {import('../types').Session} session
 * @returns {Promise<import('../types').View>}
 */
export async function run(id, session) {
  const operates = session.may.includes('operate');
  const model = new RunModel(id);
  await model.loadRun();

  const toRun = (/** @type {string} */ other) => go(address(['runs', other]));
  const doFork = operates ? (/** @type {string | null} */ at) => fork(model, at, toRun) : null;
  const doRetry = operates ? (/** @type {string | null} */ from) => retry(model, from, toRun) : null;
  const doUndo = operates ? (/** @type {string} */ ref) => planned('Undo', { act: 'undo', ref }, {
    label: 'Undo', done: () => notice('Undone. Redo is on the page of files.'),
  }) : null;

  const state = chip(standing(model.run));
  const title = el('h1');
  const sub = el('p', { class: 'run-sub' });
  const actions = el('div', { class: 'actions' });
  const facts = el('dl', { class: 'facts strip' });
  const asks = el('div', { class: 'stack questions' });
  const says = el('div', { class: 'stack' });
  const answer = el('section', { class: 'card padded', hidden: true, 'aria-label': 'Answer' }, el('h2', null, 'Answer'), el('pre', { class: 'answer' }));

  const debug = debugPanel(model, operates, toRun);
  const opened = detail(model, { retry: doRetry, fork: doFork, undo: doUndo, debug: debug.acts });
  const fall = waterfall(model, (line) => opened.open(line.path));
  const graph = graphView(model, (step) => {
    // A node inside a container has a step for each round: the newest is opened.
    const found = model.lines.has(step) ? step : lastOf(model, step);
    refine({ step: found });
    opened.open(found);
    fall.mark(found);
    opened.node.scrollIntoView({ block: 'nearest' });
  });
  const checkpoints = checkpointList(id, { fork: doFork, putBack: () => (operates && !['completed', 'cancelled'].includes(model.run.status) ? (at) => putBack(model, at) : null),
    back: () => (operates && model.debug ? (at) => { debug.back(at).then(() => refine({ tab: null }), (error) => notice(error.message, 'bad')); } : null) });
  const log = logList(id);
  const bar = tabs('Parts of the run', TABS, 'steps', (tab) => refine({ tab: tab === 'steps' ? null : tab }));
  const panel = el('div', { id: 'tab-panel', role: 'tabpanel', class: 'stack' });
  const steps = el('div', { class: 'run-grid' }, graph.node, fall.node, opened.node);

  let tab = '';
  function refined() {
    const { query } = route();
    const next = TABS.some((one) => one.id === query.get('tab')) ? (query.get('tab') ?? 'steps') : 'steps';
    if (next !== tab) {
      tab = next;
      bar.mark(tab);
      panel.setAttribute('aria-labelledby', `tab-${tab}`);
      fill(panel, tab === 'checkpoints' ? checkpoints.node : tab === 'log' ? log.node : steps);
      if (tab === 'checkpoints') checkpoints.load();
      if (tab === 'log') log.load();
    }
    if (tab === 'steps') fall.draw();
    const step = query.get('step');
    if (step && step !== opened.opened()) opened.open(step);
  }

  let asked = '';
  let could = '';
  function draw() {
    const { run } = model;
    const stands = standing(run);
    state.to(stands);
    say(title, run.name || run.id);
    if (sub.childElementCount === 0) {
      fill(sub, el('span', null, KIND[run.kind] ?? run.kind), el('span', { class: 'mono breaks' }, run.short || run.id, copies(run.id, 'the id')),
        el('span', null, 'created ', since(run.created_at)),
        run.parent ? el('span', null, 'forked from ', el('a', { class: 'mono', href: address(['runs', run.parent.slice(0, run.parent.lastIndexOf('@'))]) }, run.parent)) : null,
        run.folder ? el('span', { class: 'mono breaks' }, run.folder) : null);
    }
    fill(facts,
      fact('Took', lasted(run.duration_ms)),
      fact('Steps done', number(run.finished_steps)),
      fact('Tokens', tokens(run.usage.total), run.usage.total ? ` ${tokens(run.usage.input)} in, ${tokens(run.usage.output)} out` : null),
      fact('Cost', money(run.usage.cost)),
      fact('Recovered', run.recovery_attempts === 0 ? 'never' : run.recovery_attempts === 1 ? 'once' : `${run.recovery_attempts} times`),
      fact('Newest checkpoint', run.checkpoint ? el('span', { class: 'mono' }, run.checkpoint.slice(run.checkpoint.lastIndexOf('@'))) : 'none'));

    // Forms are made anew only if the questions differ, so that what is typed stays.
    const now = JSON.stringify(model.questions);
    if (now !== asked) {
      asked = now;
      fill(asks, model.questions.map((question) => questionForm(id, question, {
        may: session.may.includes('answer'), uncertain: isUncertain(question), answered: () => model.refresh(),
      })));
    }
    const shownState = `${run.debugged}/${stands}/${run.error}/${JSON.stringify(run.outputs)?.length}/${run.queue?.problem}`;
    if (shownState !== could) {
      could = shownState;
      drawSays();
      drawActions(stands);
    }
  }

  function drawSays() {
    const { run } = model;
    fill(says,
      run.error ? el('div', { class: 'trouble' }, el('p', { class: 'trouble-title' }, 'It failed'), el('pre', { class: 'breaks' }, run.error),
        operates ? el('p', { class: 'hint' }, 'Retry goes on where it failed; fork tries with other inputs and leaves this run as it is.') : null) : null,
      run.stalled ? el('div', { class: 'hint' }, 'It is in progress, but no process drives it: the one that did died or lost its store. Resume takes it up where it stands.') : null,
      run.queue?.problem ? el('div', { class: 'hint' }, `The last of ${run.queue.attempts} attempts of a worker came to nothing: `, run.queue.problem) : null,
      run.status === 'completed' && run.outputs !== null ? el('section', { class: 'card padded', 'aria-label': 'Outputs' }, valueBox('Outputs', run.outputs)) : null);
  }

  /** @param {string} stands */
  function drawActions(stands) {
    const { run } = model;
    /** @type {[string, string, () => void, string][]} */
    const can = [];
    if (operates) {
      if (['paused', 'stalled', 'waiting'].includes(stands) || (stands === 'queued' && !run.driven_here)) can.push(['resume', 'Resume', () => resume(model), stands === 'waiting' ? '' : 'primary']);
      if (stands === 'failed') can.push(['retry', 'Retry', () => retry(model, null, toRun), 'primary']);
      if (stands === 'completed' && run.kind !== 'guard') can.push(['retry', 'Retry from a step', () => retry(model, null, toRun), '']);
      if (run.kind === 'workflow' && !run.driven_here && ['paused', 'stalled', 'queued', 'failed', 'completed'].includes(stands)) can.push(['debug', 'Debug', () => resume(model, keptStops(id)), '']);
      if (stands === 'in_progress') can.push(['stop', 'Stop', () => stop(model), '']);
      if (!['workspace', 'embedded'].includes(run.kind)) can.push(['fork', 'Fork', () => fork(model, null, toRun), '']);
      if (run.kind === 'guard') can.push(['undo', 'Undo its files', () => doUndo?.(id), '']);
    }
    if (['guard', 'workspace'].includes(run.kind)) can.push(['files', 'Files', () => go(address(['files'], { run: id })), '']);
    can.push(['compare', 'Compare', () => chooseOther(id), '']);
    if (operates && ['queued', 'in_progress', 'paused', 'waiting', 'stalled', 'retrying'].includes(stands) && run.kind !== 'workspace') can.push(['cancel', 'Cancel', () => cancel(model), 'danger-quiet']);
    fill(actions, can.map(([act, name, does, kind]) => el('button', { class: `button ${kind}`, type: 'button', 'data-act': act, onclick: does }, name)));
  }

  model.addEventListener('run', draw);
  model.addEventListener('answer', () => {
    answer.hidden = false;
    say(/** @type {Element} */ (answer.lastElementChild), model.answer);
  });
  model.addEventListener('checkpoint', () => { if (tab === 'checkpoints') checkpoints.load(); });
  draw();
  refined();
  load();

  function load() {
    model.loadSteps().then(() => {
      const step = route().query.get('step');
      if (step) opened.open(step);
      graph.load();
    }).catch((error) => {
      if (error.kind === 'away') line.addEventListener('back', load, { once: true });
      else {
        model.knows();
        notice(error.message, 'bad');
      }
    });
  }

  return {
    node: el('div', { class: 'stack large' },
      el('div', { class: 'stack head' },
        el('p', { class: 'crumbs small' }, el('a', { href: address([]) }, 'Runs'), el('span', { class: 'quiet', 'aria-hidden': 'true' }, ' / ')),
        el('div', { class: 'page-head' }, title, state, el('span', { class: 'push' }), actions), sub, facts),
      asks, debug.node, says, answer, bar, panel),
    title: model.run.name || id,
    refined,
    stop() {
      model.stop();
      fall.stop();
    },
  };
}

/**
 * Whether a question asks what became of an effect that was begun.
 * @param {import('../types').Question} question
 */
function isUncertain(question) {
  const outcome = question.fields.find((field) => field.name === 'outcome');
  return outcome !== undefined && outcome.options.includes('not_done') && question.step.includes('#');
}

/**
 * The newest step of a node inside containers.
 * @param {RunModel} model
 * @param {string} node
 */
function lastOf(model, node) {
  const fits = model.sorted.filter((line) => line.node === node);
  return fits[fits.length - 1]?.path ?? node;
}
