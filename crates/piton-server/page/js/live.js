// Follows what the server tells as it happens. A browser's EventSource reconnects by itself while the server only hangs
// up; if it refuses or is gone for long the source closes, and then this opens a new one behind the last event that was
// seen. So a server that is killed and started again under an open page costs nothing but the wait.
//
// A page that isn't in sight follows nothing: a browser has six connections to a server for all of its pages, those that it
// keeps for its back button too. When it is looked at again it goes on behind the last event.

import { line, withQuery } from './api.js';

const WAIT = 1500;

/**
 * @param {string} path
 * @param {Record<string, (data: any, id: string) => void>} on what is done with each kind of event
 * @param {{ after?: string | number | null, ends?: string[], back?: () => void }} [options] `after` is the last event that is
 *   known; after one of `ends` nothing more comes; `back` is called when the line stands again after it was broken.
 * @returns {() => void} ends it
 */
export function follow(path, on, { after = null, ends = ['end', 'problem'], back } = {}) {
  /** @type {EventSource | null} */
  let source = null;
  let last = after === null ? '' : String(after);
  let broken = false;
  let over = false;
  /** @type {number | undefined} */
  let timer;

  function open() {
    if (document.visibilityState === 'hidden') return;
    source = new EventSource(withQuery(path, { after: last }));
    source.onopen = () => {
      line.dispatchEvent(new Event('back'));
      if (broken) back?.();
      broken = false;
    };
    source.onerror = () => {
      if (over) return;
      broken = true;
      line.dispatchEvent(new Event('away'));
      if (source?.readyState === EventSource.CLOSED) timer = window.setTimeout(open, WAIT);
    };
    for (const [kind, act] of Object.entries(on)) {
      source.addEventListener(kind, (event) => {
        if (over || !(event instanceof MessageEvent)) return;
        if (event.lastEventId) last = event.lastEventId;
        if (ends.includes(kind)) stop();
        act(event.data ? JSON.parse(event.data) : null, event.lastEventId);
      });
    }
    for (const kind of ends) if (!(kind in on)) source.addEventListener(kind, stop);
  }

  function turned() {
    clearTimeout(timer);
    source?.close();
    broken = true;
    open();
  }

  function stop() {
    over = true;
    document.removeEventListener('visibilitychange', turned);
    clearTimeout(timer);
    source?.close();
  }

  document.addEventListener('visibilitychange', turned);
  open();
  return stop;
}
