// Talks to the server that this page came from, and to no other. An answer that isn't good becomes a `Problem` with the
// hint and the field that the server names. A request without an answer is tried again only if it just looks.

/** What the server says when something can't be done. */
export class Problem extends Error {
  /** @param {{ title?: string, status?: number, kind?: string, hint?: string | null, detail?: string, field?: string, causes?: string[], problems?: any[] }} body */
  constructor(body) {
    super(body.title ?? 'The server gave no reason.');
    this.status = body.status ?? 0;
    this.kind = body.kind ?? 'internal';
    this.hint = body.hint ?? null;
    this.causes = body.causes ?? [];
    this.detail = this.causes.length > 0 ? this.causes.join(': ') : null;
    this.field = body.field ?? null;
    this.problems = body.problems ?? [];
  }
}

/** Told when a session is over, or the server is away or back. */
export const line = new EventTarget();

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
async function call(method, path, body, signal) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, {
      method, signal, credentials: 'same-origin', cache: 'no-store', redirect: 'error',
      headers: method === 'GET' ? { accept: 'application/json' } : { accept: 'application/json', 'content-type': 'application/json' },
      body: method === 'GET' || method === 'DELETE' ? undefined : JSON.stringify(body ?? {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    line.dispatchEvent(new Event('away'));
    throw new Problem({
      title: 'The server does not answer.', kind: 'away',
      hint: 'Start it again with `piton serve`; this page goes on by itself.',
    });
  }
  line.dispatchEvent(new Event('back'));
  if (response.status === 204) return null;
  const text = await response.text();
  /** @type {any} */
  let given = null;
  try {
    given = text === '' ? null : JSON.parse(text);
  } catch {
    given = { title: `The server gave something that can't be read (${response.status}).`, status: response.status };
    if (response.ok) throw new Problem(given);
  }
  if (response.ok) return given;
  if (response.status === 401) line.dispatchEvent(new Event('signed-out'));
  throw new Problem({ status: response.status, ...given });
}

/**
 * @param {string} path
 * @param {Record<string, string | number | boolean | null | undefined>} [query]
 * @param {AbortSignal} [signal]
 */
export function get(path, query = {}, signal = undefined) {
  return call('GET', withQuery(path, query), undefined, signal);
}

/**
 * @param {string} path
 * @param {unknown} [body]
 */
export const post = (path, body) => call('POST', path, body);
/** @param {string} path */
export const remove = (path) => call('DELETE', path);

/**
 * @param {string} path
 * @param {Record<string, string | number | boolean | null | undefined>} query
 */
export function withQuery(path, query) {
  const wanted = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') wanted.set(name, String(value));
  }
  const text = wanted.toString();
  return text ? `${path}?${text}` : path;
}

/**
 * The path of a run.
 * @param {string} run
 * @param {string} [more]
 */
export const ofRun = (run, more = '') => `/api/runs/${encodeURIComponent(run)}${more}`;
