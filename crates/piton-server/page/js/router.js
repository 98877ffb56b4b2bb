// The address of what is shown: `#/runs/ID?tab=steps`. Everything that a reader would want to send to a colleague or find
// again with the back button is in it: the place, the filters, the tab, what is open. The server never sees this part.

/** @typedef {{ path: string[], query: URLSearchParams }} Route */

/** @returns {Route} */
export function route() {
  const hash = location.hash.replace(/^#\/?/, '');
  const cut = hash.indexOf('?');
  const path = cut < 0 ? hash : hash.slice(0, cut);
  return {
    path: path.split('/').filter(Boolean).map(decoded),
    query: new URLSearchParams(cut < 0 ? '' : hash.slice(cut + 1)),
  };
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * The address of a place.
 * @param {string[]} path
 * @param {Record<string, string | null | undefined>} [query]
 */
export function address(path, query = {}) {
  const wanted = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) wanted.set(name, value);
  const text = wanted.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

/**
 * Changes filters or tabs of the place that is shown. What is set to nothing is left out. The back button passes over it
 * if it `replaces`.
 * @param {Record<string, string | null | undefined>} changes
 * @param {boolean} [replaces]
 */
export function refine(changes, replaces = true) {
  const { path, query } = route();
  const merged = { ...Object.fromEntries(query), ...changes };
  const next = address(path, merged);
  if (next === location.hash) return;
  if (replaces) history.replaceState(null, '', next);
  else history.pushState(null, '', next);
  window.dispatchEvent(new CustomEvent('piton:refined'));
}

/** @param {string} to */
export function go(to) {
  location.hash = to;
}
