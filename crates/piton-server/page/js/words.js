// How things are said: states, times, sizes, money. One place, so that the same thing reads the same everywhere.

/** What the page calls each state, and the colour that it has. */
const STATES = /** @type {Record<string, [string, string]>} */ ({
  queued: ['Queued', 'quiet'],
  in_progress: ['Running', 'running'],
  running: ['Running', 'running'],
  started: ['Running', 'running'],
  stalled: ['Stalled', 'stalled'],
  retrying: ['Retrying', 'stalled'],
  paused: ['Paused', 'paused'],
  waiting: ['Waiting', 'waiting'],
  completed: ['Completed', 'completed'],
  succeeded: ['Completed', 'completed'],
  failed: ['Failed', 'failed'],
  failed_with_recovery: ['Recovered', 'stalled'],
  uncertain: ['Uncertain', 'stalled'],
  cancelled: ['Cancelled', 'quiet'],
  skipped: ['Skipped', 'quiet'],
  pending: ['Not yet', 'quiet'],
  unreached: ['Not reached', 'quiet'],
  undone: ['Taken back', 'quiet'],
});

/** @param {string} state */
export const stateWord = (state) => STATES[state]?.[0] ?? state.replaceAll('_', ' ');
/** @param {string} state */
export const stateColour = (state) => STATES[state]?.[1] ?? 'quiet';

/**
 * How long something took, in at most two units.
 * @param {number | null | undefined} ms
 */
export function lasted(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/**
 * How long ago a moment was, or how far away it is.
 * @param {string | null | undefined} at
 * @param {number} [now]
 */
export function ago(at, now = Date.now()) {
  if (!at) return '–';
  const ms = now - Date.parse(at);
  if (!Number.isFinite(ms)) return at;
  const seconds = Math.abs(ms) / 1000;
  const words =
    seconds < 5 ? 'now' :
    seconds < 60 ? `${Math.floor(seconds)} s` :
    seconds < 3600 ? `${Math.floor(seconds / 60)} min` :
    seconds < 86400 ? `${Math.floor(seconds / 3600)} h` :
    seconds < 86400 * 60 ? `${Math.floor(seconds / 86400)} d` : clock(at, true);
  if (words === 'now' || seconds >= 86400 * 60) return words;
  return ms < 0 ? `in ${words}` : `${words} ago`;
}

/**
 * A moment by the clock of the reader.
 * @param {string} at
 * @param {boolean} [day]
 */
export function clock(at, day = false) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  const pad = (/** @type {number} */ part) => String(part).padStart(2, '0');
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  if (!day && date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${time}`;
}

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return '–';
  if (bytes < 1000) return `${bytes} B`;
  let scaled = bytes;
  for (const unit of ['kB', 'MB', 'GB', 'TB']) {
    scaled /= 1000;
    if (scaled < 999.5 || unit === 'TB') return `${scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${unit}`;
  }
  return '';
}

/** @param {number | null | undefined} count */
export function number(count) {
  return count === null || count === undefined ? '–' : count.toLocaleString('en-GB');
}

/**
 * Tokens, short: 950, 12.3k, 4.1M.
 * @param {number} count
 */
export function tokens(count) {
  if (count < 1000) return String(count);
  if (count < 1e6) return `${(count / 1e3).toFixed(count < 1e4 ? 1 : 0)}k`;
  return `${(count / 1e6).toFixed(1)}M`;
}

/** @param {number} cost */
export function money(cost) {
  if (!cost) return '$0';
  return cost < 0.01 ? `$${cost.toFixed(4)}` : `$${cost.toFixed(2)}`;
}

/**
 * `1 run`, `3 runs`.
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export function counted(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/**
 * A value in one line, for lists. What is long is cut.
 * @param {unknown} value
 * @param {number} [most]
 */
export function brief(value, most = 120) {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/**
 * A value as it is shown when it is opened: texts as they are, the rest as indented JSON.
 * @param {unknown} value
 */
export function whole(value) {
  return typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '');
}
