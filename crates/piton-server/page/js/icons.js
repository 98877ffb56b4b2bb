// Small signs, drawn: a font may lack a character, and then shows a box.

import { svg } from './dom.js';

const PATHS = /** @type {Record<string, string>} */ ({
  copy: 'M6 6V3.5A1.5 1.5 0 0 1 7.5 2h5A1.5 1.5 0 0 1 14 3.5v5A1.5 1.5 0 0 1 12.5 10H10M3.5 6h5A1.5 1.5 0 0 1 10 7.5v5A1.5 1.5 0 0 1 8.5 14h-5A1.5 1.5 0 0 1 2 12.5v-5A1.5 1.5 0 0 1 3.5 6z',
  done: 'M3 8.5 6.5 12 13 4.5',
  close: 'M3.5 3.5l9 9M12.5 3.5l-9 9',
  less: 'M3 8h10',
  more: 'M3 8h10M8 3v10',
  fit: 'M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10',
  auto: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 2v12M8 5l4.6-1M8 8h6M8 11l4.6 1',
  light: 'M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.1 1.1M11.9 11.9 13 13M3 13l1.1-1.1M11.9 4.1 13 3',
  dark: 'M13.2 9.6A5.8 5.8 0 0 1 6.4 2.8 5.8 5.8 0 1 0 13.2 9.6z',
});

/** @param {string} name */
export function icon(name) {
  return svg('svg', { viewBox: '0 0 16 16', width: 16, height: 16, class: `icon icon-${name}`, 'aria-hidden': 'true' }, svg('path', { d: PATHS[name] ?? '' }));
}
