// What the page tells of itself: short notices at the foot, problems in place with their hint, and dialogs. The browser's
// own dialog element keeps the focus inside and gives it back.

import { el, fill } from './dom.js';
import { Problem } from './api.js';
import { hinted } from './hints.js';
import { icon } from './icons.js';

/**
 * A short notice at the foot of the page, also read out.
 * @param {string} text
 * @param {'good' | 'bad'} [tone]
 */
export function notice(text, tone = 'good') {
  const node = el('p', { class: `toast ${tone}` }, text);
  document.getElementById('toasts')?.append(node);
  setTimeout(() => node.remove(), tone === 'bad' ? 12000 : 5000);
}

/**
 * A problem in place: what went wrong, and what to do.
 * @param {unknown} error
 * @param {(() => void) | null} [again]
 */
export function trouble(error, again = null) {
  const problem = error instanceof Problem ? error : null;
  return el('div', { class: 'trouble', role: 'alert' },
    el('p', { class: 'trouble-title' }, problem?.message ?? said(error)),
    problem?.detail && problem.detail !== problem.message ? el('p', null, problem.detail) : null,
    problem?.hint ? el('p', { class: 'hint' }, hinted(problem.hint)) : null,
    again ? el('button', { class: 'button', type: 'button', onclick: again }, 'Try again') : null);
}

/** @param {unknown} error */
export function said(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * What is shown where there is nothing: why, and what to do next.
 * @param {string} title
 * @param {import('./dom.js').Children[]} more
 */
export function nothing(title, ...more) {
  return el('div', { class: 'nothing' }, el('p', { class: 'nothing-title' }, title), ...more.flat());
}

/**
 * Opens a dialog. `build` gets a function that closes it.
 * @param {string} title
 * @param {(close: () => void) => import('./dom.js').Children} build
 * @param {{ wide?: boolean, closed?: () => void }} [options]
 */
export function dialog(title, build, { wide = false, closed } = {}) {
  const id = `dialog-${Math.random().toString(36).slice(2)}`;
  const node = el('dialog', { class: wide ? 'dialog wide' : 'dialog', 'aria-labelledby': id, tabindex: '-1' });
  const close = () => node.close();
  node.addEventListener('close', () => {
    node.remove();
    closed?.();
  });
  const body = el('div', { class: 'dialog-body' });
  node.append(el('div', { class: 'dialog-head' },
    el('h2', { id }, title),
    el('button', { class: 'icon-button', type: 'button', 'aria-label': 'Close', onclick: close }, icon('close'))), body);
  fill(body, build(close));
  document.body.append(node);
  node.showModal();
  const first = body.querySelector('input, select, textarea');
  if (first instanceof HTMLElement) first.focus();
  else node.focus();
  return { node, body, close };
}

/**
 * A button that does something once: it is off while that runs, and shows what went wrong.
 * @param {string} label
 * @param {() => Promise<void>} act
 * @param {{ kind?: string, where?: HTMLElement, title?: string, id?: string }} [options] `where` takes the problem.
 */
export function acting(label, act, { kind = '', where, title, id } = {}) {
  const button = el('button', { class: `button ${kind}`, type: 'button', title, id }, label);
  button.addEventListener('click', async () => {
    if (button.getAttribute('aria-disabled') === 'true') return;
    button.setAttribute('aria-disabled', 'true');
    if (where) fill(where);
    try {
      await act();
    } catch (error) {
      if (where) fill(where, trouble(error));
      else notice(error instanceof Problem && error.hint ? `${error.message} – ${error.hint}` : said(error), 'bad');
    } finally {
      button.removeAttribute('aria-disabled');
    }
  });
  return button;
}

/**
 * Asks before something that can't be taken back, or whose reach should be seen first.
 * @param {string} title
 * @param {import('./dom.js').Children} text
 * @param {string} label
 * @param {() => Promise<void>} act
 * @param {string} [kind]
 */
export function confirmed(title, text, label, act, kind = 'danger') {
  dialog(title, (close) => {
    const where = el('div');
    return [
      el('div', { class: 'stack' }, text), where,
      el('div', { class: 'actions' },
        acting(label, async () => { await act(); close(); }, { kind, where }),
        el('button', { class: 'button', type: 'button', onclick: close }, 'Back')),
    ];
  });
}
