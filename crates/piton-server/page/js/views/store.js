// The store: how large it is, what retention would remove, whether all of it is whole, which workers take runs from it, what
// waits in its queue, who reserved which file, and who did what over this server.

import { get, post } from '../api.js';
import { el, fill, say } from '../dom.js';
import { follow } from '../live.js';
import { confirmed, notice, nothing, trouble } from '../notices.js';
import { planned } from '../plan.js';
import { chip, fact, since } from '../parts.js';
import { address } from '../router.js';
import { clock, counted, lasted, number, size } from '../words.js';

/** @typedef {import('./../dom.js').Children} Children */

/**
 * @param {import('../types').Session} session
 * @returns {Promise<import('../types').View>}
 */
export async function store(session) {
  const operates = session.may.includes('operate');
  /** @type {(() => void)[]} */
  const ends = [];
  const about = el('section', { class: 'card padded stack', 'aria-label': 'Size' });
  const workers = panel('Workers and leases');
  const queue = panel('Queue');
  const leases = panel('Reserved files');
  const audit = panel('Who did what');

  async function loadAbout() {
    try {
      const now = await get('/api/store');
      const totals = now.totals ?? {};
      const full = now.budget ? Math.min(100, (now.bytes / now.budget) * 100) : 0;
      fill(about,
        el('h2', null, 'Size'),
        el('p', { class: 'mono small breaks quiet' }, now.store),
        el('p', { class: 'big num' }, size(now.bytes), now.budget ? el('span', { class: 'quiet small' }, ` of at most ${size(now.budget)}`) : null),
        now.budget ? el('progress', { class: 'meter', max: 100, value: full, 'aria-label': `${Math.round(full)} % of the budget` }) : null,
        el('dl', { class: 'facts' }, fact('Runs', number(now.runs)), fact('Entries', number(totals.entries)), fact('Packs', number(totals.packs), totals.pack_bytes ? ` ${size(totals.pack_bytes)}` : null), fact('Segments', number(totals.segments), totals.segment_bytes ? ` ${size(totals.segment_bytes)}` : null)));
    } catch (error) {
      fill(about, trouble(error, loadAbout));
    }
  }

  await loadAbout();
  const load = () => {
    loadWorkers(workers.body, operates);
    loadQueue(queue.body);
    loadLeases(leases.body);
    if (operates) loadAudit(audit.body);
  };
  load();
  const tick = setInterval(() => loadWorkers(workers.body, operates), 10000);

  return {
    title: 'Store',
    node: el('div', { class: 'stack large' },
      el('div', { class: 'page-head' }, el('h1', null, 'Store')),
      el('div', { class: 'sides' }, about, el('div', { class: 'stack' }, retention(operates, loadAbout), check(ends))),
      workers.node, queue.node, leases.node, operates ? audit.node : null),
    stop() {
      clearInterval(tick);
      for (const end of ends) end();
    },
  };
}

/** @param {string} title */
function panel(title) {
  const body = el('div', { class: 'panel-body' }, el('p', { class: 'quiet small padded' }, 'Loading…'));
  return { body, node: el('section', { class: 'card', 'aria-label': title }, el('div', { class: 'filters' }, el('h2', null, title)), body) };
}

/**
 * @param {boolean} operates
 * @param {() => void} done
 */
function retention(operates, done) {
  return el('section', { class: 'card padded stack', 'aria-label': 'Retention' },
    el('h2', null, 'Retention'),
    el('p', { class: 'quiet' }, 'Completed runs stay 7 days, failed ones 30, unfinished ones for ever, unless configured otherwise. Nothing goes that another checkpoint needs.'),
    operates ? el('div', { class: 'actions' }, el('button', {
      class: 'button', type: 'button', id: 'gc', onclick: () => planned('What retention would remove', { act: 'gc' }, {
        label: 'Remove it',
        kind: 'danger',
        done(result) {
          notice(`${counted(result.runs, 'run')} and ${counted(result.checkpoints, 'checkpoint')} removed; ${size(Math.max(0, result.bytes_before - result.bytes_after))} given back.`);
          done();
        },
      }),
    }, 'Show what it would remove')) : null);
}

/** @param {(() => void)[]} ends */
function check(ends) {
  const shown = el('div', { class: 'stack', role: 'status' });
  const deep = el('input', { type: 'checkbox', id: 'deep' });
  const button = el('button', { class: 'button', type: 'button', id: 'check' }, 'Check the store');
  /** @type {(() => void) | null} */
  let stop = null;

  button.addEventListener('click', () => {
    if (stop) {
      stop();
      stop = null;
      say(button, 'Check the store');
      fill(shown, el('p', { class: 'quiet' }, 'Stopped.'));
      return;
    }
    const words = el('p', { class: 'num small breaks' }, 'Reading everything…');
    fill(shown, el('progress', { class: 'meter', 'aria-label': 'Checking' }), words);
    say(button, 'Stop the check');
    const end = () => {
      stop = null;
      say(button, 'Check the store');
    };
    stop = follow(`/api/store/check${deep.checked ? '?deep=true' : ''}`, {
      progress: (data) => say(words, data.words),
      done(found) {
        end();
        fill(shown, result(found));
      },
      problem(problem) {
        end();
        fill(shown, trouble(Object.assign(new Error(problem.title), problem)));
      },
    }, { ends: ['done', 'problem'] });
    ends.push(() => stop?.());
  });

  return el('section', { class: 'card padded stack', 'aria-label': 'Check' },
    el('h2', null, 'Check'),
    el('p', { class: 'quiet' }, 'Reads everything, compares every hash, and asks of each checkpoint whether all of it is there.'),
    el('label', { class: 'check', for: 'deep' }, deep, el('span', null, 'Decode every value too')),
    el('div', { class: 'actions' }, button), shown);
}

/** @param {any} found */
function result(found) {
  const defects = [...found.defects, ...found.packs.map((/** @type {any} */ pack) => ({ what: 'a pack', detail: pack.detail })),
    ...found.runs.flatMap((/** @type {any} */ run) => run.defects.map((/** @type {any} */ one) => ({ what: `${run.run}: ${one.what}`, detail: one.detail })))];
  const damaged = found.runs.flatMap((/** @type {any} */ run) => run.damaged.map((/** @type {any} */ one) => one.checkpoint));
  const checkpoints = found.runs.reduce((/** @type {number} */ sum, /** @type {any} */ run) => sum + run.checkpoints, 0);
  return [
    found.whole ? el('p', { class: 'good' }, `All of it is whole: ${counted(found.runs.length, 'run')}, ${counted(checkpoints, 'checkpoint')}.`) :
      el('div', { class: 'trouble' }, el('p', { class: 'trouble-title' }, `${counted(defects.length, 'damaged place')}`),
        el('ul', null, defects.slice(0, 50).map((one) => el('li', { class: 'breaks small' }, el('b', null, one.what), ' ', one.detail))),
        damaged.length > 0 ? el('p', { class: 'breaks small' }, 'Checkpoints that this affects: ', damaged.slice(0, 50).join(', ')) : null,
        el('p', { class: 'hint' }, el('code', null, 'piton check --repair'), ' copies what is whole into a new store and keeps this one.')),
    found.sizes ? el('dl', { class: 'facts' }, fact('As if each were alone', size(found.sizes.logical)), fact('Different values', size(found.sizes.unique)), fact('Stored', size(found.sizes.stored))) : null,
  ];
}

/**
 * @param {HTMLElement} body
 * @param {boolean} operates
 */
async function loadWorkers(body, operates) {
  /** @type {import('../types').Worker[]} */
  let workers;
  try {
    ({ workers } = await get('/api/workers'));
  } catch (error) {
    fill(body, lacking(error, 'This store has no workers.'));
    return;
  }
  if (workers.length === 0) {
    fill(body, nothing('No worker takes runs from this store.', el('p', null, 'Start one on any machine that reaches it:'), el('pre', { class: 'sample' }, 'piton worker run')));
    return;
  }
  const drain = (/** @type {string} */ name) => confirmed(`Drain ${name}`, el('p', null, 'It takes no more runs, finishes those that it has, and ends.'), 'Drain it', async () => {
    await post('/api/workers/drain', { name });
    notice(`${name} takes no more runs.`);
    loadWorkers(body, operates);
  }, 'primary');
  table(body, 'Workers', ['Worker', 'State', 'Runs', 'Labels', 'Last sign of life', ''], workers.map((worker) => [
    el('span', { class: 'mono breaks' }, worker.name),
    worker.draining ? chip('paused', 'Draining') : worker.silent_for_ms > 30000 ? chip('stalled', 'Silent') : chip('running', 'At work'),
    el('span', { class: 'num' }, `${worker.runs} of ${worker.concurrency}`),
    worker.labels.join(', ') || '–', `${lasted(worker.silent_for_ms)} ago`,
    operates && !worker.draining ? el('button', { class: 'button small', type: 'button', onclick: () => drain(worker.name) }, 'Drain') : null,
  ]));
}

/** @param {HTMLElement} body */
async function loadQueue(body) {
  try {
    const { queue } = await get('/api/queue');
    if (queue.length === 0) {
      fill(body, nothing('Nothing waits for a worker.', el('p', null, 'Put a run into the queue with:'), el('pre', { class: 'sample' }, 'piton submit flow.yml -i topic=bees')));
      return;
    }
    table(body, 'Queue', ['Run', 'State', 'Attempts', 'Due', 'Priority', 'Worker or problem'], queue.map((/** @type {any} */ run) => [
      el('a', { href: address(['runs', run.id]), class: 'breaks' }, run.name || run.id), chip(run.queue.worker ? 'running' : run.queue.due ? (run.queue.attempts > 0 ? 'retrying' : 'queued') : 'failed', run.queue.due || run.queue.worker ? undefined : 'Given up'),
      el('span', { class: 'num' }, String(run.queue.attempts)), since(run.queue.due), el('span', { class: 'num' }, String(run.queue.priority)), el('span', { class: 'breaks small' }, run.queue.problem ?? run.queue.worker ?? '–'),
    ]));
  } catch (error) {
    fill(body, lacking(error, 'This store has no queue.'));
  }
}

/** @param {HTMLElement} body */
async function loadLeases(body) {
  try {
    /** @type {{ leases: import('../types').Lease[] }} */
    const { leases } = await get('/api/files/leases');
    if (leases.length === 0) {
      fill(body, nothing('No file is reserved.', el('p', null, 'Agents that share a folder reserve what they are about to write:'), el('pre', { class: 'sample' }, 'piton lease take src/a.rs')));
      return;
    }
    table(body, 'Reserved files', ['Path', 'For', 'By', 'Since', 'Until'], leases.map((lease) => [
      el('span', { class: 'mono breaks' }, lease.path), lease.mode === 'write' ? 'Writing' : 'Reading', el('span', { class: 'breaks' }, lease.owner), since(lease.acquired_at), since(lease.expires_at)]));
  } catch (error) {
    fill(body, trouble(error));
  }
}

/** @param {HTMLElement} body */
async function loadAudit(body) {
  try {
    /** @type {{ acts: import('../types').Act[] }} */
    const { acts } = await get('/api/audit', { limit: 50 });
    if (acts.length === 0) {
      fill(body, nothing('Nothing was done over this server yet.'));
      return;
    }
    table(body, 'Who did what', ['When', 'Who', 'What', 'Of', 'Result'], acts.map((act) => [
      el('span', { class: 'nowrap num', title: clock(act.at, true) }, since(act.at)), el('span', { class: 'breaks' }, act.by, ' ', el('span', { class: 'quiet small' }, act.from)), el('span', { class: 'breaks' }, act.act, act.detail ? el('span', { class: 'quiet small' }, ` ${act.detail}`) : null),
      el('span', { class: 'mono small breaks' }, act.subject || '–'), act.status === null ? 'Not over' : act.status < 300 ? 'Done' : `Refused (${act.status})`]));
  } catch (error) {
    fill(body, trouble(error));
  }
}

/**
 * @param {HTMLElement} body
 * @param {string} label
 * @param {string[]} names
 * @param {Children[][]} rows
 */
function table(body, label, names, rows) {
  fill(body, el('div', { class: 'table-frame', tabindex: '0', role: 'group', 'aria-label': label }, el('table', { class: 'table' },
    el('thead', null, el('tr', null, names.map((name) => (name ? el('th', { scope: 'col' }, name) : el('td'))))),
    el('tbody', null, rows.map((cells) => el('tr', null, cells.map((cell) => el('td', null, cell))))))));
}

/**
 * @param {unknown} error
 * @param {string} words
 */
function lacking(error, words) {
  if (error instanceof Error && 'status' in error && error.status === 422) return nothing(words, el('p', null, 'Stores in SQLite and PostgreSQL have one.'));
  return trouble(error);
}
