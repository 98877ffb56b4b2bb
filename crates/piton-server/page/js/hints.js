// Hints come as text with commands between backticks: those are set as code.

import { el } from './dom.js';

/** @param {string} text */
export function hinted(text) {
  return text.split('`').map((part, place) => (place % 2 ? el('code', null, part) : part));
}
