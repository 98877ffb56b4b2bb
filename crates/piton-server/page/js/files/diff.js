// A unified diff as lines with numbers. A long one shows its beginning first. Signs and words tell what colours show.

import { el } from '../dom.js';
import { nothing } from '../notices.js';
import { counted } from '../words.js';

const FIRST = 400;

/** @param {string | null | undefined} diff */
export function diffView(diff) {
  if (!diff) return nothing('No lines to show.', el('p', null, 'It is not a text, or only its name or permissions changed.'));
  const lines = diff.split('\n');
  if (lines[lines.length - 1] === '') lines.pop();
  const body = el('tbody');
  let old = 0;
  let now = 0;
  let place = 0;
  let begun = false;

  /** @param {number} to */
  function draw(to) {
    for (; place < Math.min(to, lines.length); place += 1) {
      const line = lines[place] ?? '';
      const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
      if (hunk) {
        begun = true;
        old = Number(hunk[1]);
        now = Number(hunk[2]);
        body.append(el('tr', { class: 'hunk' }, el('td', { colspan: 3 }, line)));
      } else if (!begun) {
        continue;
      } else if (line.startsWith('+')) {
        body.append(row('added', '', now, line));
        now += 1;
      } else if (line.startsWith('-')) {
        body.append(row('removed', old, '', line));
        old += 1;
      } else if (line.startsWith('\\')) {
        body.append(row('note', '', '', line));
      } else {
        body.append(row('same', old, now, line));
        old += 1;
        now += 1;
      }
    }
  }

  draw(FIRST);
  const node = el('div', { class: 'diff', tabindex: '0', role: 'group', 'aria-label': 'Changed lines' }, el('table', null, body));
  if (lines.length <= FIRST) return node;
  const more = el('button', { class: 'link-button', type: 'button' }, `Show ${counted(lines.length - FIRST, 'more line')}`);
  more.addEventListener('click', () => {
    draw(Infinity);
    more.remove();
  });
  return el('div', null, node, more);
}

/**
 * @param {string} kind
 * @param {number | string} old
 * @param {number | string} now
 * @param {string} line
 */
function row(kind, old, now, line) {
  return el('tr', { class: kind },
    el('td', { class: 'line-number num', 'data-n': String(old) }), el('td', { class: 'line-number num', 'data-n': String(now) }),
    el('td', { class: 'line-text' }, line || ' '));
}
