// The document of a run as a picture that moves: nodes and edges where the server laid them out, each node in the colour
// and with the word of its state. A node is a button: it opens its step. The picture can be enlarged, moved with the mouse
// or by scrolling, and fits its frame at first.

import { el, fill, say, settled, svg } from '../dom.js';
import { icon } from '../icons.js';
import { brief, lasted, stateColour, stateWord } from '../words.js';
import { stepState } from './model.js';

/** @typedef {import('../types').Graph} Graph */
/** @typedef {import('../types').GraphNode} GraphNode */

/** @typedef {import('./model.js').StepLine} StepLine */
/** @typedef {{ state: string, attempts: number, rounds: number, took: string }} NodeState */

const PAD = 2;
const OVER = ['completed', 'failed', 'cancelled'];
const NOT_BEGUN = ['pending', 'skipped', 'unreached', ''];

/**
 * @param {import('./model.js').RunModel} model
 * @param {(step: string) => void} chosen
 */
export function graphView(model, chosen) {
  const frame = el('div', { class: 'graph-frame', tabindex: '0', role: 'group', 'aria-label': 'Graph of the workflow' });
  const zoom = el('span', { class: 'quiet small num', 'aria-live': 'off' });
  const node = el('section', { class: 'card graph', 'aria-label': 'Graph', hidden: true },
    el('div', { class: 'filters' }, el('h2', null, 'Graph'), el('span', { class: 'push' }), zoom,
      tool('less', 'Smaller', () => grow(1 / 1.25)), tool('more', 'Larger', () => grow(1.25)), tool('fit', 'Fit', () => { factor = fit(); size(); })),
    frame);
  /** @type {Graph | null} */
  let graph = null;
  /** @type {SVGElement | null} */
  let picture = null;
  let factor = 0;
  /** @type {Map<string, { group: SVGElement, word: SVGElement, badge: SVGElement, graph: GraphNode }>} */
  const boxes = new Map();
  /** @type {{ node: SVGElement, source: string, target: string }[]} */
  const lines = [];

  const fit = () => (graph ? Math.min(1, Math.max(0.7, (frame.clientWidth - 10) / (graph.width + 2 * PAD))) : 1);

  function size() {
    if (!graph || !picture) return;
    picture.setAttribute('width', String((graph.width + 2 * PAD) * factor));
    picture.setAttribute('height', String((graph.height + 2 * PAD) * factor));
    say(zoom, `${Math.round(factor * 100)} %`);
  }

  /** @param {number} by */
  function grow(by) {
    factor = Math.min(2, Math.max(0.25, factor * by));
    size();
  }

  async function load() {
    if (model.run.kind !== 'workflow' || graph) return;
    /** @type {Graph} */
    let drawn;
    try {
      drawn = await model.loadGraph();
    } catch {
      // A document that is too large has no picture; the steps say the rest.
      return;
    }
    graph = drawn;
    const root = svg('g', { transform: `translate(${PAD} ${PAD})` });
    draw(root, drawn, '');
    picture = svg('svg', { viewBox: `0 0 ${drawn.width + 2 * PAD} ${drawn.height + 2 * PAD}`, class: 'graph-picture', role: 'group', 'aria-label': `${drawn.nodes.length} nodes` },
      svg('defs', {}, svg('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: 'userSpaceOnUse', orient: 'auto-start-reverse' }, svg('path', { d: 'M0 0 8 4 0 8z', class: 'graph-arrow' }))),
      root);
    node.hidden = false;
    fill(frame, picture);
    factor = fit();
    size();
    update();
  }

  /**
   * @param {SVGElement} into
   * @param {Graph} graph
   * @param {string} above
   */
  function draw(into, graph, above) {
    for (const edge of graph.edges) {
      const path = svg('path', { d: curve(edge.points), class: 'graph-line', 'marker-end': 'url(#arrow)' });
      lines.push({ node: path, source: above + edge.source, target: above + edge.target });
      into.append(path);
      if (edge.exit && edge.label) into.append(svg('text', { x: edge.label[0], y: edge.label[1] + 4, class: 'graph-exit', 'text-anchor': 'middle' }, edge.exit));
    }
    for (const one of graph.nodes) {
      const path = above + one.id;
      const word = svg('text', { x: 13, y: 35, class: 'graph-word' });
      const badge = svg('text', { x: one.width - 2, y: -4, class: 'graph-badge', 'text-anchor': 'end' });
      const group = svg('g', { transform: `translate(${one.x} ${one.y})`, tabindex: '0', role: 'button', class: 'graph-node', 'data-node': path },
        svg('rect', { width: one.width, height: one.height, rx: 9, class: 'graph-box' }),
        svg('rect', { x: 0, y: 8, width: 4, height: 28, rx: 2, class: 'graph-edge-mark' }),
        svg('text', { x: 13, y: 18, class: 'graph-title' }, shownTitle(one)),
        ' ', word, ' ', badge, stopSign('before', one.width / 2, 0), stopSign('after', one.width / 2, one.height));
      const open = (/** @type {Event} */ event) => {
        event.stopPropagation();
        chosen(path);
      };
      group.addEventListener('click', open);
      group.addEventListener('keydown', (event) => {
        const key = /** @type {KeyboardEvent} */ (event).key;
        if (key === 'Enter' || key === ' ') {
          event.preventDefault();
          open(event);
        }
      });
      into.append(group);
      if (one.inside) {
        // Beside the group, not in it: a button can't hold buttons.
        const inner = svg('g', { transform: `translate(${one.x} ${one.y})` });
        draw(inner, one.inside, `${path}/`);
        into.append(inner);
      }
      boxes.set(path, { group, word, badge, graph: one });
    }
  }

  /**
   * @param {string} path
   * @param {NodeState} now
   */
  function paint(path, { state, attempts, rounds, took }) {
    const box = boxes.get(path);
    if (!box) return;
    const { graph: one, group, word, badge } = box;
    const colour = `graph-node ${stateColour(state)} is-${state}`;
    if (group.getAttribute('class') !== colour) group.setAttribute('class', colour);
    const often = rounds > 1 ? `${rounds} rounds` : attempts > 1 ? `${attempts} attempts` : '';
    const room = (one.width - 18) / 6.8;
    const all = [stateWord(state), took].filter(Boolean).join(' · ');
    say(word, all.length <= room ? all : stateWord(state));
    say(badge, rounds > 1 ? `${rounds}×` : attempts > 1 ? `×${attempts}` : '');
    group.setAttribute('aria-label', [`${shownTitle(one)} ${word.textContent} ${badge.textContent}`.trim(), one.title, often, one.kind].filter(Boolean).join(', '));
  }

  /** Where the debugger stands, and where it would stop. */
  function paintDebugger() {
    const { debug } = model;
    const at = debug?.standing && debug.stop?.step ? debug.stop.step.split('/').filter((part) => !/^[0-9]+$/.test(part)).join('/') : '';
    for (const [path, { group }] of boxes) {
      const stands = path === at ? debug?.stop?.phase ?? '' : '';
      if ((group.getAttribute('data-stands') ?? '') !== stands) group.setAttribute('data-stands', stands);
      const id = path.slice(path.lastIndexOf('/') + 1);
      for (const side of ['before', 'after']) {
        const stops = debug?.breakpoints.some((one) => one.phase === side && one.node.slice(one.node.lastIndexOf('/') + 1) === id) ?? false;
        group.querySelector(`:scope > .graph-stop.${side}`)?.toggleAttribute('data-on', stops);
      }
    }
  }

  /** Lays the states of the steps over the nodes that they are of. */
  function update() {
    const over = OVER.includes(model.run.status);
    const asked = new Set(model.questions.map((one) => one.step));
    /** @type {Map<string, StepLine[]>} */
    const found = new Map();
    for (const line of model.lines.values()) {
      if (!boxes.has(line.node)) continue;
      const known = found.get(line.node);
      if (known) known.push(line);
      else found.set(line.node, [line]);
    }
    for (const question of model.questions) {
      const asks = question.step.split('#')[0] ?? '';
      if (boxes.has(asks) && !found.has(asks)) found.set(asks, [model.blank(asks)]);
    }
    /** @type {Map<string, string>} */
    const states = new Map();
    for (const path of boxes.keys()) {
      const now = stateOf(found.get(path) ?? [], model.run, asked, over);
      states.set(path, now.state);
      paint(path, now);
    }
    paintDebugger();
    for (const { node, source, target } of lines) {
      const [from, to] = [states.get(source) ?? '', states.get(target) ?? ''];
      const left = ['completed', 'failed'].includes(from);
      node.setAttribute('class', `graph-line ${left && !NOT_BEGUN.includes(to) ? 'taken' : over && left ? 'not-taken' : ''}`);
    }
  }

  const soon = settled(() => { if (graph) update(); }, 120);
  let last = 0;
  const changed = () => {
    // Steps that never rest must not keep the picture from changing.
    if (graph && Date.now() - last > 400) {
      last = Date.now();
      update();
    } else {
      soon();
    }
  };
  model.addEventListener('steps', changed);
  model.addEventListener('debug', () => { if (graph) update(); });
  model.addEventListener('run', () => { if (!model.paused) changed(); });

  return { node, load };
}

/** @param {string} side @param {number} x @param {number} y */
const stopSign = (side, x, y) => svg('circle', { cx: x, cy: y, r: 5.5, class: `graph-stop ${side}` });

/** As much of a title as fits. @param {GraphNode} one */
const shownTitle = (one) => brief(one.title || one.id, Math.max(6, Math.floor((one.width - 24) / 7.1)));

/**
 * How a node stands, from its steps: in a container it has one for each round.
 * @param {StepLine[]} lines
 * @param {import('../types').WholeRun} run
 * @param {Set<string>} asked
 * @param {boolean} over
 * @returns {NodeState}
 */
function stateOf(lines, run, asked, over) {
  const standing = lines.map((line) => stepState(line, run, asked)).filter((state) => state !== 'undone');
  const one = ['running', 'stalled', 'waiting', 'retrying'].find((state) => standing.includes(state));
  const newest = lines.reduce((/** @type {StepLine | null} */ most, line) => (most === null || line.since >= most.since ? line : most), null);
  const attempt = newest?.attempts[newest.attempts.length - 1];
  const state = one ?? (attempt && !attempt.undone ? attempt.status : null) ?? standing[0] ?? (over ? (run.status === 'completed' ? 'skipped' : 'unreached') : 'pending');
  return {
    state,
    attempts: newest?.attempts.length ?? 0,
    rounds: lines.length,
    took: attempt && ['completed', 'failed'].includes(state) ? lasted(attempt.duration_ms) : '',
  };
}

/** @param {string} sign @param {string} name @param {() => void} act */
function tool(sign, name, act) {
  return el('button', { class: 'icon-button', type: 'button', 'aria-label': name, title: name, onclick: act }, icon(sign));
}

/**
 * A soft line through the points of an edge.
 * @param {[number, number][]} points
 */
function curve(points) {
  const [first, ...rest] = points;
  if (!first) return '';
  let path = `M${first[0]} ${first[1]}`;
  const last = rest[rest.length - 1];
  if (rest.length === 1 && last) {
    return `${path}L${last[0]} ${last[1]}`;
  }
  for (let place = 0; place < rest.length; place += 1) {
    const [x, y] = /** @type {[number, number]} */ (rest[place]);
    const next = rest[place + 1];
    if (!next) path += `L${x} ${y}`;
    else path += `Q${x} ${y} ${(x + next[0]) / 2} ${(y + next[1]) / 2}`;
  }
  return path;
}
