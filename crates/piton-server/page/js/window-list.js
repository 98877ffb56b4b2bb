// A list of which only the rows in sight exist: ten thousand steps cost what forty do. Every row has the same height, so
// the place of a row is a product; what a row opens is shown beside the list, not inside it. Arrow keys, Home, End and the
// page keys move the mark; a screen reader is told each row's place and how many there are.

import { el } from './dom.js';

const SPARE = 8;

/**
 * @template T
 * @typedef {{
 *   node: HTMLElement,
 *   show: (items: T[]) => void,
 *   mark: (key: string | null, scroll?: boolean) => void,
 *   toEnd: () => void,
 * }} WindowList
 */

/**
 * @template T
 * @param {{
 *   label: string,
 *   height: number,
 *   key: (item: T) => string,
 *   row: (item: T, index: number) => HTMLElement,
 *   chosen: (item: T) => void,
 *   version?: (item: T) => string,
 * }} options `version` is what a row shows, as a text: a row is made anew when it differs.
 * @returns {WindowList<T>}
 */
export function windowList({ label, height, key, row, chosen, version = () => '' }) {
  const space = el('div', { class: 'window-space', role: 'presentation' });
  const node = el('div', { class: 'window', role: 'listbox', tabindex: '0', 'aria-label': label }, space);
  /** @type {T[]} */
  let items = [];
  /** @type {Map<string, { node: HTMLElement, version: string, index: number }>} */
  let drawn = new Map();
  /** @type {string | null} */
  let marked = null;
  let asked = false;

  function draw() {
    asked = false;
    const from = Math.max(0, Math.floor(node.scrollTop / height) - SPARE);
    const to = Math.min(items.length, Math.ceil((node.scrollTop + (node.clientHeight || 600)) / height) + SPARE);
    /** @type {typeof drawn} */
    const next = new Map();
    for (let index = from; index < to; index += 1) {
      const item = /** @type {T} */ (items[index]);
      const name = key(item);
      const now = version(item);
      let one = drawn.get(name);
      if (!one || one.version !== now) {
        one?.node.remove();
        const made = row(item, index);
        made.classList.add('window-row');
        made.setAttribute('role', 'option');
        made.id = `row-${rowId(name)}`;
        made.addEventListener('click', () => choose(name));
        one = { node: made, version: now, index: -1 };
        space.append(made);
      }
      if (one.index !== index) {
        one.node.style.transform = `translateY(${index * height}px)`;
        one.node.setAttribute('aria-posinset', String(index + 1));
        one.index = index;
      }
      one.node.setAttribute('aria-setsize', String(items.length));
      one.node.setAttribute('aria-selected', String(name === marked));
      next.set(name, one);
    }
    for (const [name, one] of drawn) if (!next.has(name)) one.node.remove();
    drawn = next;
    if (marked !== null && drawn.has(marked)) node.setAttribute('aria-activedescendant', `row-${rowId(marked)}`);
    else node.removeAttribute('aria-activedescendant');
  }

  function soon() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(draw);
  }

  /** @param {string | null} name */
  const place = (name) => (name === null ? -1 : items.findIndex((item) => key(item) === name));

  /** @param {number} index */
  function reveal(index) {
    const top = index * height;
    if (top < node.scrollTop) node.scrollTop = top;
    else if (top + height > node.scrollTop + node.clientHeight) node.scrollTop = top + height - node.clientHeight;
  }

  /** @param {string} name */
  function choose(name) {
    marked = name;
    draw();
    const item = items[place(name)];
    if (item !== undefined) chosen(item);
  }

  node.addEventListener('scroll', soon, { passive: true });
  new ResizeObserver(soon).observe(node);
  node.addEventListener('keydown', (event) => {
    const here = place(marked);
    const page = Math.max(1, Math.floor(node.clientHeight / height) - 1);
    const steps = /** @type {Record<string, number>} */ ({
      ArrowDown: here + 1, ArrowUp: here < 0 ? 0 : here - 1, PageDown: here + page, PageUp: here - page, Home: 0, End: items.length - 1,
    });
    const to = steps[event.key];
    if (to === undefined || items.length === 0) return;
    event.preventDefault();
    const index = Math.min(items.length - 1, Math.max(0, to));
    reveal(index);
    choose(key(/** @type {T} */ (items[index])));
  });

  return {
    node,
    show(given) {
      items = given;
      space.style.height = `${items.length * height}px`;
      draw();
    },
    mark(name, scroll = true) {
      marked = name;
      const index = place(name);
      if (scroll && index >= 0) reveal(index);
      draw();
    },
    toEnd() {
      node.scrollTop = node.scrollHeight;
    },
  };
}

/**
 * What an id may hold, made of any text.
 * @param {string} name
 */
export function rowId(name) {
  return Array.from(name, (char) => (/[A-Za-z0-9-]/.test(char) ? char : `_${char.codePointAt(0)?.toString(16)}`)).join('');
}
