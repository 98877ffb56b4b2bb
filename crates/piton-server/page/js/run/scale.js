// The scale of a timeline. A run that works for seconds and waits for days would be a dot in a desert: what nobody worked
// in, if it is long, becomes a narrow gap that says how long it was and why. Between the gaps the scale is true.

/** @typedef {{ from: number, to: number, x: number, width: number, gap: string | null }} Stretch */
/** @typedef {{ stretches: Stretch[], at: (time: number) => number, from: number, to: number }} Scale */

const GAP = 0.035;

/**
 * @param {import('./model.js').StepLine[]} lines in the order in which they began
 * @param {import('../types').Entry[]} marks oldest first
 * @param {number | null} now while the run goes on
 * @returns {Scale}
 */
export function scale(lines, marks, now) {
  const work = busy(lines, now);
  const first = work[0]?.[0] ?? Date.parse(marks[0]?.created_at ?? '') ?? 0;
  const last = Math.max(work[work.length - 1]?.[1] ?? first, now ?? 0, first + 1);
  const worked = Math.max(1, work.reduce((sum, [from, to]) => sum + to - from, 0));
  /** @type {Omit<Stretch, 'x' | 'width'>[]} */
  const parts = [];
  let from = first;
  let end = first;
  for (const [begins, ends] of [...work, /** @type {[number, number]} */ ([last, last])]) {
    const idle = begins - end;
    if (idle > 1500 && idle > worked * 0.15) {
      if (end > from) parts.push({ from, to: end, gap: null });
      parts.push({ from: end, to: begins, gap: reason(marks, end, begins) });
      from = begins;
    }
    end = Math.max(end, ends);
  }
  if (last > from || parts.length === 0) parts.push({ from, to: last, gap: null });

  const gaps = parts.filter((part) => part.gap !== null).length;
  const each = gaps === 0 ? 0 : Math.min(GAP, 0.4 / gaps);
  const time = parts.reduce((sum, part) => sum + (part.gap === null ? part.to - part.from : 0), 0);
  const room = 1 - each * gaps;
  let x = 0;
  const stretches = parts.map((part) => {
    const width = part.gap === null ? (time === 0 ? room : ((part.to - part.from) / time) * room) : each;
    const stretch = { ...part, x, width };
    x += width;
    return stretch;
  });

  return {
    stretches, from: first, to: last,
    at(moment) {
      for (const { from: begins, to, x: left, width } of stretches) {
        if (moment <= to) return left + width * Math.max(0, Math.min(1, (moment - begins) / Math.max(1, to - begins)));
      }
      return 1;
    },
  };
}

/**
 * When anything was at work, without overlaps, in order.
 * @param {import('./model.js').StepLine[]} lines
 * @param {number | null} now
 */
function busy(lines, now) {
  /** @type {[number, number][]} */
  const spans = [];
  for (const line of lines) {
    for (const { created_at: at, duration_ms: took } of line.attempts) {
      const from = Date.parse(at);
      spans.push([from, from + Math.max(1, took)]);
    }
    if (line.running) spans.push([Date.parse(line.running), now ?? Date.parse(line.running)]);
  }
  spans.sort((a, b) => a[0] - b[0]);
  /** @type {[number, number][]} */
  const merged = [];
  for (const span of spans) {
    const before = merged[merged.length - 1];
    if (before && span[0] <= before[1]) before[1] = Math.max(before[1], span[1]);
    else merged.push([...span]);
  }
  return merged;
}

/**
 * Why nothing was done between two moments.
 * @param {import('../types').Entry[]} marks
 * @param {number} from
 * @param {number} to
 */
function reason(marks, from, to) {
  const slack = 50;
  const inside = marks.filter(({ created_at: at }) => Date.parse(at) >= from - slack && Date.parse(at) <= to + slack);
  const has = (/** @type {string} */ kind) => inside.some((mark) => mark.kind === kind);
  const became = (/** @type {string} */ state) => inside.some((mark) => mark.kind === 'state_changed' && (mark.label === state || mark.body?.status === state));
  if (has('asked') || has('answer') || became('waiting')) return 'waiting for an answer';
  if (became('paused')) return 'paused';
  if (became('failed')) return 'failed, until it was tried again';
  if (has('claimed')) return 'no process, until it was taken up again';
  return 'nothing to do';
}
