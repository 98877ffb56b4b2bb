// Small things that every view shows: a state with its word, a time that stays true, a key figure, a value that opens.

import { el, fill, say } from './dom.js';
import { get } from './api.js';
import { icon } from './icons.js';
import { trouble } from './notices.js';
import { ago, brief, clock, size, stateColour, stateWord, whole } from './words.js';

/**
 * A state: a dot in its colour, and always its word.
 * @param {string} state
 * @param {string} [word]
 */
export function chip(state, word = stateWord(state)) {
  const node = el('span', { class: chipClass(state) }, el('span', { class: 'dot', 'aria-hidden': 'true' }), el('span', null, word));
  return Object.assign(node, {
    /** @param {string} next @param {string} [said] */
    to(next, said = stateWord(next)) {
      const now = chipClass(next);
      if (node.className !== now) node.className = now;
      say(/** @type {Element} */ (node.lastElementChild), said);
    },
  });
}

const LIVE = ['in_progress', 'running', 'started'];
/** @param {string} state */
const chipClass = (state) => `chip ${stateColour(state)}${LIVE.includes(state) ? ' live' : ''}`;

/** The state of a run as people see it: one in progress that no process drives is stalled.
 * @param {{ status: string, stalled?: boolean, queue?: import('./types').Place }} run */
export function standing(run) {
  if (run.stalled) return 'stalled';
  if (run.status === 'queued' && (run.queue?.attempts ?? 0) > 0) return 'retrying';
  return run.status;
}

/** @type {Set<HTMLTimeElement>} */
const times = new Set();
setInterval(() => {
  for (const node of times) {
    if (!node.isConnected) times.delete(node);
    else say(node, ago(node.dateTime));
  }
}, 5000);

/**
 * How long ago something was; it goes on by itself.
 * @param {string | null | undefined} at
 */
export function since(at) {
  if (!at) return el('span', { class: 'quiet' }, '–');
  const node = el('time', { class: 'nowrap', datetime: at, title: clock(at, true) }, ago(at));
  setTimeout(() => times.add(node));
  return node;
}

/**
 * A figure with its name.
 * @param {string} name
 * @param {import('./dom.js').Children} value
 * @param {import('./dom.js').Children} [more]
 */
export function fact(name, value, more) {
  return el('div', { class: 'fact' }, el('dt', null, name), el('dd', null, value, more ? el('span', { class: 'fact-more' }, more) : null));
}

/** A button that puts a text on the clipboard.
 * @param {string} text
 * @param {string} what */
export function copies(text, what) {
  const button = el('button', { class: 'icon-button small', type: 'button', 'aria-label': `Copy ${what}`, title: `Copy ${what}` }, icon('copy'));
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
      fill(button, icon('done'));
    } catch {
      fill(button, icon('close'));
    }
    setTimeout(() => fill(button, icon('copy')), 1200);
  });
  return button;
}

const OPEN = 4000;

/**
 * A value as text. A long one shows its beginning and opens; one that the server held back is loaded when it is opened.
 * @param {string} name
 * @param {unknown} value
 * @param {{ bytes?: number, load?: () => Promise<unknown> }} [options]
 */
export function valueBox(name, value, { bytes = 0, load } = {}) {
  const held = (value === null || value === undefined) && bytes > 4 && load !== undefined;
  const head = el('div', { class: 'value-head' }, el('h3', { class: 'value-name' }, name));
  const body = el('div', { class: 'value-body' });
  const node = el('div', { class: 'value', role: 'group', 'aria-label': name }, head, body);
  if (bytes > 2000) head.append(el('span', { class: 'quiet small num' }, size(bytes)));

  /** @param {unknown} given */
  function show(given) {
    const text = whole(given);
    const pre = el('pre', { tabindex: text.length > 600 ? '0' : null });
    fill(body, pre);
    if (text.length <= OPEN) {
      pre.textContent = text;
    } else {
      pre.textContent = `${text.slice(0, OPEN)}…`;
      const more = el('button', { class: 'link-button', type: 'button' }, `Show all ${size(text.length)}`);
      more.addEventListener('click', () => {
        pre.textContent = text;
        more.remove();
      });
      body.append(more);
    }
    head.append(copies(text, name.toLowerCase()));
  }

  if (!held) {
    if (value === null || value === undefined || (typeof value === 'object' && Object.keys(value).length === 0)) fill(body, el('p', { class: 'quiet small' }, 'Nothing.'));
    else show(value);
    return node;
  }
  const opener = el('button', { class: 'button', type: 'button' }, `Load ${size(bytes)}`);
  opener.addEventListener('click', async () => {
    opener.disabled = true;
    say(opener, 'Loading…');
    try {
      show(await load());
    } catch (error) {
      fill(body, trouble(error));
    }
  });
  fill(body, opener);
  return node;
}

/**
 * What a reference points to, whole.
 * @param {string} ref
 */
export const shown = (ref) => get('/api/show', { ref });

/** A value in one line.
 * @param {unknown} value */
export function oneLine(value) {
  return el('span', { class: 'one-line mono' }, brief(value));
}

/**
 * Tabs, of which one is shown. The arrow keys move between them.
 * @param {string} label
 * @param {{ id: string, name: string }[]} tabs
 * @param {string} current
 * @param {(id: string) => void} chosen
 */
export function tabs(label, tabs, current, chosen) {
  const buttons = tabs.map(({ id, name }) =>
    el('button', { class: 'tab', role: 'tab', type: 'button', id: `tab-${id}`, 'aria-controls': 'tab-panel', 'data-tab': id }, name));
  const node = el('div', { class: 'tabs', role: 'tablist', 'aria-label': label }, buttons);
  /** @param {string} id */
  function mark(id) {
    for (const button of buttons) {
      const on = button.dataset.tab === id;
      button.setAttribute('aria-selected', String(on));
      button.tabIndex = on ? 0 : -1;
    }
  }
  for (const [place, button] of buttons.entries()) {
    button.addEventListener('click', () => chosen(button.dataset.tab ?? ''));
    button.addEventListener('keydown', (event) => {
      const move = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (move === 0) return;
      event.preventDefault();
      const next = buttons[(place + move + buttons.length) % buttons.length];
      next?.focus();
      next?.click();
    });
  }
  mark(current);
  return Object.assign(node, { mark });
}
