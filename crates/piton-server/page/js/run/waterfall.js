// The steps of a run as a timeline: one row for each step, with a bar for each of its attempts, on a scale that folds long
// gaps. Only the rows in sight exist. What is wrong can be searched for and filtered; the newest row is kept in sight
// while the run goes on, unless the reader has scrolled away.

import { el, fill, say, settled } from '../dom.js';
import { refine, route } from '../router.js';
import { counted, lasted, money, stateColour, stateWord, tokens } from '../words.js';
import { windowList } from '../window-list.js';
import { scale } from './scale.js';
import { stepState } from './model.js';

/** @typedef {import('./model.js').StepLine} StepLine */
/** @typedef {import('./model.js').RunModel} RunModel */

const OVER = ['completed', 'failed', 'cancelled', 'paused', 'waiting'];

/**
 * @param {RunModel} model
 * @param {(line: StepLine) => void} chosen
 */
export function waterfall(model, chosen) {
  let found = scale([], [], null);
  /** @type {Set<string>} */
  let asked = new Set();
  let drawn = 0;
  let first = true;

  const text = el('input', { type: 'search', placeholder: 'Find a step', 'aria-label': 'Find a step' });
  text.addEventListener('input', settled(() => refine({ find: text.value.trim() || null }), 150));
  const only = el('select', { 'aria-label': 'Which steps' },
    [['', 'All steps'], ['failed', 'Failed'], ['running', 'Running'], ['slow', 'Slowest']].map(([value, word]) => el('option', { value }, word)));
  only.addEventListener('change', () => refine({ only: only.value || null }));
  const count = el('span', { class: 'quiet small num', role: 'status' });
  const gaps = el('p', { class: 'gaps small quiet' });
  const pause = el('button', { class: 'button small', type: 'button', 'aria-pressed': 'false' }, 'Pause the view');
  pause.addEventListener('click', () => model.pause(!model.paused));

  const list = windowList({
    label: 'Steps',
    height: 38,
    key: (/** @type {StepLine} */ line) => line.path,
    version: (line) => `${line.version}/${stepState(line, model.run, asked)}/${drawn}`,
    row,
    chosen(line) {
      refine({ step: line.path });
      chosen(line);
    },
  });
  const head = el('div', { class: 'fall-head small quiet', 'aria-hidden': 'true' },
    el('span', null, 'Step'), el('span', { class: 'fall-lane' }), el('span', { class: 'fall-took' }, 'Took'), el('span', { class: 'fall-used' }, 'Used'));
  const none = el('p', { class: 'quiet padded' });
  const node = el('section', { class: 'card fall', 'aria-label': 'Timeline' },
    el('div', { class: 'filters' }, el('h2', null, 'Timeline'), text, only, count, el('span', { class: 'push' }), pause),
    gaps, head, list.node, none);

  /** @param {StepLine} line */
  function row(line) {
    const state = stepState(line, model.run, asked);
    const last = line.attempts[line.attempts.length - 1];
    const took = line.attempts.reduce((sum, one) => sum + one.duration_ms, 0);
    const cost = last?.usage.cost ?? 0;
    const used = last?.usage.total ? `${tokens(last.usage.total)}${cost ? ` · ${money(cost)}` : ''}` : '';
    const tries = line.attempts.length;
    const name = el('span', { class: 'fall-name' },
      el('span', { class: `dot ${stateColour(state)}`, 'aria-hidden': 'true' }),
      el('span', { class: 'fall-title', title: line.path }, line.title),
      line.depth > 0 ? el('span', { class: 'fall-above quiet small' }, line.path.slice(0, line.path.lastIndexOf('/'))) : null,
      tries > 1 ? el('span', { class: 'tries', title: `${tries} attempts` }, `×${tries}`) : null,
      el('span', { class: 'hush' }, `, ${line.path}, `),
      el('span', { class: state === 'completed' ? 'hush' : `fall-state ${stateColour(state)}` }, stateWord(state)));
    name.style.paddingInlineStart = `${10 + Math.min(line.depth, 6) * 14}px`;
    return el('div', { class: `fall-row ${stateColour(state)}` }, name, lane(line, state),
      el('span', { class: 'fall-took num' }, tries === 0 ? (line.running ? '…' : '') : lasted(took)),
      el('span', { class: 'fall-used num' }, used));
  }

  /**
   * @param {StepLine} line
   * @param {string} state
   */
  function lane(line, state) {
    const node = el('span', { class: 'fall-lane', 'aria-hidden': 'true' });
    for (const { gap, x, width } of found.stretches) if (gap !== null) node.append(placed(el('span', { class: 'gap' }), x, width));
    /** @param {number} from @param {number} to @param {string} colour */
    const bar = (from, to, colour) => {
      const x = found.at(from);
      node.append(placed(el('span', { class: `bar ${colour}` }), Math.min(x, 0.995), Math.max(0.004, found.at(to) - x)));
    };
    for (const one of line.attempts) {
      const from = Date.parse(one.created_at);
      bar(from, from + one.duration_ms, `${stateColour(one.undone ? 'undone' : one.status)}${one.undone ? ' undone' : ''}`);
    }
    if (line.running) bar(Date.parse(line.running), found.to, `${stateColour(state)} live`);
    return node;
  }

  function wanted() {
    const { query } = route();
    const find = (query.get('find') ?? '').toLowerCase();
    const which = query.get('only') ?? '';
    if (document.activeElement !== text) text.value = query.get('find') ?? '';
    only.value = which;
    let lines = model.sorted;
    if (find) lines = lines.filter((line) => line.path.toLowerCase().includes(find) || line.title.toLowerCase().includes(find));
    if (which === 'failed') lines = lines.filter((line) => line.attempts.some((one) => one.status === 'failed') || line.error);
    if (which === 'running') lines = lines.filter((line) => line.running || ['waiting', 'retrying'].includes(stepState(line, model.run, asked)));
    if (which === 'slow') lines = [...lines].sort((a, b) => longest(b) - longest(a));
    return lines;
  }

  function draw() {
    if (!model.run) return;
    asked = new Set(model.questions.map((one) => one.step));
    const goesOn = !OVER.includes(model.run.status) && !model.run.stalled;
    found = scale(model.sorted, model.marks, goesOn ? Date.now() : null);
    drawn += 1;
    const atEnd = list.node.scrollTop + list.node.clientHeight >= list.node.scrollHeight - 60;
    const height = list.node.scrollHeight;
    const lines = wanted();
    list.node.style.height = `min(56vh, ${Math.max(5, Math.min(lines.length, 40)) * 38}px)`;
    list.show(lines);
    // Older pages come above what is read: it stays where it is.
    if (model.loading && !atEnd) list.node.scrollTop += Math.max(0, list.node.scrollHeight - height);
    if ((goesOn && atEnd && !route().query.get('only')) || (model.loading && atEnd)) list.toEnd();
    const step = route().query.get('step');
    if (first && step && model.lines.has(step)) {
      first = false;
      list.mark(step);
    }
    list.node.hidden = lines.length === 0;
    say(count, model.loading ? `${counted(lines.length, 'step')}, loading…` : counted(lines.length, 'step'));
    say(none, lines.length > 0 ? '' : model.sorted.length > 0 ? 'No step fits.' :
      model.run.status === 'queued' ? 'It has not begun. Steps show up here as they start.' : 'It has no steps yet.');
    none.hidden = lines.length > 0;
    const folded = found.stretches.filter((one) => one.gap !== null);
    fill(gaps, folded.slice(0, 4).map((one) => el('span', { class: 'gap-note' }, el('span', { class: 'gap-sign', 'aria-hidden': 'true' }), `${lasted(one.to - one.from)} ${one.gap}`)),
      folded.length > 4 ? el('span', null, `and ${counted(folded.length - 4, 'more gap')}`) : null);
    gaps.hidden = folded.length === 0;
  }

  function kept() {
    pause.setAttribute('aria-pressed', String(model.paused));
    say(pause, model.paused ? `Go on (${counted(model.kept.length, 'change')} behind)` : 'Pause the view');
    pause.hidden = OVER.slice(0, 3).includes(model.run?.status) && !model.paused;
  }

  model.addEventListener('steps', draw);
  model.addEventListener('run', () => { kept(); draw(); });
  model.addEventListener('kept', kept);
  const tick = setInterval(() => {
    if (!model.paused && model.sorted.some((line) => line.running)) draw();
  }, 1000);

  return {
    node, draw,
    /** @param {string} path */
    mark: (path) => list.mark(path),
    stop: () => clearInterval(tick),
  };
}

/** @param {StepLine} line */
const longest = (line) => line.attempts.reduce((most, one) => Math.max(most, one.duration_ms), 0);

/**
 * @param {HTMLElement} node
 * @param {number} x
 * @param {number} width
 */
function placed(node, x, width) {
  node.style.left = `${(x * 100).toFixed(3)}%`;
  node.style.width = `${(width * 100).toFixed(3)}%`;
  return node;
}

