// Builds elements. Text is only ever set as text: what runs hold is hostile, and nothing here can make markup of it.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Child | Child[]} Children */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {Element} node
 * @param {Record<string, any>} attributes
 */
function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on') && typeof value === 'function') {
      node.addEventListener(name.slice(2), value);
    } else if (name === 'value' && 'value' in node) {
      node.value = value;
    } else if (name === 'checked' && 'checked' in node) {
      node.checked = value;
    } else {
      node.setAttribute(name, value === true ? '' : String(value));
    }
  }
}

/**
 * @param {Element} node
 * @param {Children[]} children
 */
export function append(node, ...children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * An element with attributes (`onclick` and the like take functions) and children; strings become text.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {Children[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  if (attributes) set(node, attributes);
  append(node, ...children);
  return node;
}

/**
 * The same for drawings.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {Children[]} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  set(node, attributes);
  append(node, ...children);
  return node;
}

/**
 * Puts other children in the place of those that a node has.
 * @param {Element} node
 * @param {Children[]} children
 */
export function fill(node, ...children) {
  node.replaceChildren();
  append(node, ...children);
}

/**
 * Sets a text only if it differs, so that a selection or a screen reader isn't disturbed.
 * @param {Element} node
 * @param {string} text
 */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Brings the children of `parent` in line with `items`: one element for each key, made once, updated after, in order.
 * Focus and scroll places survive, because what stays is not made anew.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => Element & { update?: (item: T) => void }} make
 */
export function keyed(parent, items, key, make) {
  /** @type {Map<string, Element & { update?: (item: T) => void }>} */
  const had = new Map();
  for (const child of parent.children) had.set(child.getAttribute('data-key') ?? '', child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let node = had.get(name);
    had.delete(name);
    if (node) {
      node.update?.(item);
    } else {
      node = make(item);
      node.setAttribute('data-key', name);
    }
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const gone of had.values()) gone.remove();
}

/**
 * Calls `then` once things have been quiet for a while.
 * @template {any[]} A
 * @param {(...given: A) => void} then
 * @param {number} wait
 */
export function settled(then, wait) {
  /** @type {number | undefined} */
  let timer;
  return (/** @type {A} */ ...given) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => then(...given), wait);
  };
}
