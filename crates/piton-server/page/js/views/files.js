// Files: what agents and people did to the folder, newest first, one line in time with each checkpoint by its author. A
// moment opens to its prompt, its command and its lines; from there it can be undone, or the folder brought back to it.
// A path in the address shows only what changed that path: who wrote it, and when.

import { get, post } from '../api.js';
import { el, fill, settled } from '../dom.js';
import { lineCounts, planned } from '../plan.js';
import { diffView } from '../files/diff.js';
import { AUTHOR, momentRow } from '../files/moment.js';
import { icon } from '../icons.js';
import { follow } from '../live.js';
import { acting, dialog, notice, nothing, trouble } from '../notices.js';
import { copies, since, valueBox } from '../parts.js';
import { address, refine, route } from '../router.js';
import { clock, counted } from '../words.js';

/** @typedef {import('../types').Moment} Moment */

const SIGN = /** @type {Record<string, [string, string]>} */ ({ created: ['A', 'create'], modified: ['M', 'write'], deleted: ['D', 'delete'], renamed: ['R', 'write'] });

/**
 * @param {import('../types').Session} session
 * @returns {Promise<import('../types').View>}
 */
export async function files(session) {
  const operates = session.may.includes('operate');
  /** @type {Moment[]} */
  let moments = [];
  /** @type {string | null} */
  let next = null;
  let opened = '';
  let asking = 0;
  let over = false;

  const status = el('section', { class: 'card padded folder', 'aria-label': 'The folder' });
  const list = el('ol', { class: 'moments', 'aria-label': 'Checkpoints of the folder' });
  const foot = el('div', { class: 'list-foot' });
  const open = el('section', { class: 'card detail', 'aria-label': 'Checkpoint' });
  const path = el('input', { type: 'search', placeholder: 'History of a file, as in src/main.rs', 'aria-label': 'History of a file' });
  path.addEventListener('input', settled(() => refine({ path: path.value.trim() || null, at: null }), 300));
  const by = el('select', { 'aria-label': 'Author' }, [['', 'By everyone'], ['agent', 'By agents'], ['user', 'By you'], ['unattributed', 'Unattributed'], ['restore', 'Restores']].map(([value, word]) => el('option', { value }, word)));
  by.addEventListener('change', () => refine({ by: by.value || null }));

  /** What undoes or brings back came to. @param {any} result */
  function done(result) {
    const again = result.is_undo !== false && result.id ? ' It can be taken back with Redo or Undo.' : '';
    notice(`${counted(result.files_restored ?? 0, 'path')} changed.${again}`);
    for (const one of result.rescued ?? []) notice(`What was written to ${one.path ?? 'a file'} meanwhile is kept in ${one.kept}.`, 'bad');
    load();
    loadStatus();
  }
  /** @param {string | null} ref */
  const undo = (ref) => planned('Undo', { act: 'undo', ref: ref ?? undefined }, { label: 'Undo it', done, intro: el('p', null, 'Only what that piece of work changed is taken back. What you changed since stays, or is shown as a conflict first.') });
  const redo = () => planned('Redo', { act: 'redo' }, { label: 'Redo it', done, intro: el('p', null, 'Gives back what the last undo took.') });

  /** @param {Moment} moment */
  function restore(moment) {
    const only = el('input', { id: 'restore-only', type: 'text', placeholder: 'All files', class: 'mono' });
    const exact = el('input', { id: 'restore-exact', type: 'checkbox' });
    const extra = el('div', { class: 'stack' },
      el('div', { class: 'field' }, el('label', { for: 'restore-only' }, 'Only these paths, with commas between'), only),
      el('label', { class: 'check', for: 'restore-exact' }, exact, el('span', null, 'Exactly as it was: also what you changed since goes back')));
    const changed = (/** @type {Event} */ event) => {
      event.stopPropagation();
      const paths = only.value.split(',').map((one) => one.trim()).filter(Boolean);
      extra.dispatchEvent(new CustomEvent('change', { detail: { only: paths.length > 0 ? paths : undefined, exact: exact.checked } }));
    };
    only.addEventListener('change', changed);
    exact.addEventListener('change', changed);
    planned(`Bring the files back to ${moment.id}`, { act: 'restore', to: moment.id }, { label: 'Bring them back', done, extra });
  }

  function save() {
    dialog('Save a checkpoint', (close) => {
      const message = el('input', { id: 'save-message', type: 'text', placeholder: 'before the refactor' });
      const where = el('div');
      return [el('div', { class: 'field' }, el('label', { for: 'save-message' }, 'What for'), message), where,
        el('div', { class: 'actions' }, acting('Save', async () => {
          const saved = await post('/api/save', { message: message.value.trim() });
          close();
          notice(`Saved as ${saved.id}, ${counted(saved.files, 'file')}.`);
          load();
          loadStatus();
        }, { kind: 'primary', where }), el('button', { class: 'button', type: 'button', onclick: close }, 'Back'))];
    });
  }

  async function loadStatus() {
    try {
      /** @type {import('../types').Status} */
      const now = await get('/api/files/status');
      if (over) return;
      const [author] = AUTHOR[now.made_by] ?? [now.made_by];
      fill(status,
        el('div', { class: 'page-head' },
          el('div', null, el('h2', { class: 'mono breaks' }, now.folder),
            el('p', { class: 'quiet small' }, now.checkpoint ? ['Newest checkpoint ', el('code', null, now.checkpoint), ' ', since(now.created_at)] : 'No checkpoint yet')),
          el('span', { class: 'push' }),
          operates ? el('div', { class: 'actions' },
            el('button', { class: 'button primary', type: 'button', id: 'save', onclick: save }, 'Save a checkpoint'),
            el('button', { class: 'button', type: 'button', id: 'undo', onclick: () => undo(null) }, 'Undo the last'),
            el('button', { class: 'button', type: 'button', id: 'redo', onclick: redo }, 'Redo')) : null),
        now.changes.length === 0 ? el('p', { class: 'good small' }, 'The folder is as its newest checkpoint has it.') :
          el('details', null, el('summary', null, `${counted(now.changes.length, 'path')} changed since, by ${author.toLowerCase()}`),
            el('ul', { class: 'plain-files' }, now.changes.slice(0, 200).map((change) => el('li', { class: 'mono small breaks' }, el('span', { class: `sign ${SIGN[change.kind]?.[1] ?? ''}`, title: change.kind }, SIGN[change.kind]?.[0] ?? '·'), ' ', change.path)))));
    } catch (error) {
      fill(status, trouble(error, loadStatus));
    }
  }

  function shownMoments() {
    const { query } = route();
    const author = query.get('by');
    const run = query.get('run');
    return moments.filter((moment) => (!author || moment.made_by === author) && (!run || moment.run === run));
  }

  function draw() {
    const shown = shownMoments();
    const places = [...list.children].length;
    fill(list, shown.map((moment, at) => momentRow(moment, moment.id === opened, shown[at - 1], (id) => refine({ at: id }))));
    const { query } = route();
    if (shown.length === 0) {
      fill(foot, query.get('path') || query.get('by') || query.get('run')
        ? nothing('No checkpoint fits.', el('p', null, el('a', { href: address(['files']) }, 'Show the whole line')))
        : nothing('There are no checkpoints of files yet.', el('p', null, 'Save one here, or let an agent work under guard:'), el('pre', { class: 'sample' }, 'piton guard -- claude')));
    } else {
      fill(foot, next ? el('button', { class: 'button', type: 'button', onclick: more }, 'Show older') : query.get('run') ? el('a', { href: address(['files']) }, 'Show the whole line') : null);
    }
    return places;
  }

  async function load() {
    const mine = ++asking;
    const wanted = route().query.get('path');
    try {
      const given = wanted ? await get('/api/log', { path: wanted, limit: 200 }) : await get('/api/files/timeline', { limit: 100 });
      if (mine !== asking || over) return;
      moments = given.moments;
      next = wanted ? null : given.next;
      draw();
    } catch (error) {
      if (mine === asking && !over) {
        moments = [];
        fill(list);
        fill(foot, trouble(error, load));
      }
    }
  }

  async function more() {
    try {
      const given = await get('/api/files/timeline', { limit: 100, before: next });
      moments = [...moments, ...given.moments];
      next = given.next;
      draw();
    } catch (error) {
      notice(error instanceof Error ? error.message : '', 'bad');
    }
  }

  async function openMoment() {
    const id = route().query.get('at') ?? '';
    opened = id;
    for (const one of list.querySelectorAll('.moment-head')) one.setAttribute('aria-pressed', String(one.getAttribute('data-id') === id));
    if (!id) {
      fill(open, nothing('No checkpoint is open.', el('p', null, 'Choose one in the line to see what changed in it, and why.')));
      return;
    }
    const place = moments.findIndex((moment) => moment.id === id);
    const moment = moments[place];
    // What a session or a call of a tool did began with its own checkpoint; anything else with the one before it.
    const before = moment?.since ?? moments.slice(place + 1).find((one) => one.id !== id)?.id;
    const cause = el('div', { class: 'stack' });
    if (moment) causes(moment.run, stepsOf(moment, moments)).then((found) => { if (opened === id) fill(cause, found); });
    const lines = el('div', { class: 'stack' }, el('p', { class: 'quiet small loading' }, 'Loading what changed…'));
    const [author, colour] = AUTHOR[moment?.made_by ?? ''] ?? ['Unknown', 'quiet'];
    fill(open,
      el('div', { class: 'detail-head' },
        el('div', { class: 'detail-title' }, el('h2', { class: 'breaks' }, moment?.description || moment?.label || id), moment ? el('span', { class: `chip ${colour}` }, el('span', { class: 'dot', 'aria-hidden': 'true' }), author) : null),
        el('p', { class: 'mono small quiet breaks' }, id, copies(id, 'the checkpoint')),
        el('button', { class: 'icon-button close', type: 'button', 'aria-label': 'Close the checkpoint', onclick: () => refine({ at: null }) }, icon('close'))),
      moment ? el('p', { class: 'quiet small' }, clock(moment.created_at, true), moment.author ? ` · ${moment.author}` : null, ' · ', el('a', { href: address(['runs', moment.run]) }, 'its run')) : null,
      cause,
      operates ? el('div', { class: 'actions' },
        el('button', { class: 'button', type: 'button', 'data-act': 'undo', onclick: () => undo(moment?.step ? `${moment.run}/${moment.step}` : id) }, 'Undo this'),
        moment ? el('button', { class: 'button', type: 'button', 'data-act': 'restore', onclick: () => restore(moment) }, 'Bring the files back to here') : null) : null,
      lines);
    if (!before) {
      fill(lines, el('p', { class: 'quiet' }, place < 0 ? 'It is further back than what is listed.' : 'It is the first that is listed: there is nothing before it to compare with.'));
      return;
    }
    try {
      const only = route().query.get('path');
      /** @type {import('../types').FilesDiff} */
      const diff = await get('/api/diff/files', { from: before, to: id, lines: true });
      if (opened !== id) return;
      const changes = only ? diff.changes.filter((change) => change.path === only || change.path.startsWith(`${only}/`)) : diff.changes;
      fill(lines, changes.length === 0 ? el('p', { class: 'quiet' }, 'No file changed in it.') : changes.map((change, at) => fileDiff(change, at < 12)));
    } catch (error) {
      if (opened === id) fill(lines, trouble(error, openMoment));
    }
  }

  function mark() {
    const { query } = route();
    if (document.activeElement !== path) path.value = query.get('path') ?? '';
    by.value = query.get('by') ?? '';
  }

  const stop = follow('/api/changes', { run: settled((run) => { if (['guard', 'workspace'].includes(run.kind)) { load(); loadStatus(); } }, 600) }, { back: () => { load(); loadStatus(); } });
  let wasPath = route().query.get('path');
  mark();
  await Promise.all([load(), loadStatus()]);
  openMoment();

  return {
    title: 'Files',
    node: el('div', { class: 'stack large' }, el('div', { class: 'page-head' }, el('h1', null, 'Files')), status,
      el('div', { class: 'split files-split' }, el('section', { class: 'card', 'aria-label': 'Line of checkpoints' }, el('div', { class: 'filters' }, path, by), list, foot), open)),
    refined() {
      mark();
      const now = route().query.get('path');
      if (now !== wasPath) {
        wasPath = now;
        load().then(openMoment);
        return;
      }
      if ((route().query.get('at') ?? '') !== opened) openMoment();
      draw();
    },
    stop() {
      over = true;
      stop();
    },
  };
}

/**
 * The steps that tell why a checkpoint was made: the call of a tool, and the turn of the agent around it.
 * @param {Moment} moment
 * @param {Moment[]} moments
 */
function stepsOf(moment, moments) {
  const seq = (/** @type {string | null | undefined} */ id) => Number((id ?? '').slice((id ?? '').lastIndexOf('@') + 1));
  const turn = moments.find((one) => one.run === moment.run && one.id !== moment.id && one.step?.startsWith('turn')
    && seq(one.since) <= seq(moment.since ?? moment.id) && seq(one.id) > seq(moment.id));
  const above = moment.step?.includes('/') ? moment.step.slice(0, moment.step.lastIndexOf('/')) : turn?.step;
  return [moment.step, above].filter((step) => typeof step === 'string');
}

/**
 * What an agent was asked and what it ran, from the steps of its session.
 * @param {string} run
 * @param {string[]} steps
 */
async function causes(run, steps) {
  const found = [];
  for (const step of steps) {
    const given = await get('/api/show', { ref: `${run}/${step}` }).catch(() => null);
    const input = given?.input;
    if (input === null || input === undefined) continue;
    if (typeof input === 'string') found.push(told('Prompt', input, 'quote'));
    else if (typeof input.prompt === 'string') found.push(told('Prompt', input.prompt, 'quote'));
    else if (typeof input.command === 'string') found.push(told('Command', input.command, 'command'));
    else found.push(valueBox('What the tool was given', input));
  }
  return found;
}

/** @param {string} name @param {string} text @param {string} kind */
const told = (name, text, kind) => el('div', { class: 'value' }, el('h3', { class: 'value-name' }, name), el('pre', { class: kind }, text));

/**
 * @param {import('../types').FileDiff} change
 * @param {boolean} open
 */
function fileDiff(change, open) {
  const [sign, kind] = SIGN[change.kind] ?? ['·', ''];
  const body = el('div', { class: 'file-diff', hidden: !open });
  const show = () => { if (body.childElementCount === 0) fill(body, diffView(change.diff)); };
  if (open) show();
  const head = el('button', { class: 'file-head', type: 'button', 'aria-expanded': String(open) },
    el('span', { class: `sign ${kind}`, title: change.kind }, sign), el('span', { class: 'mono breaks' }, change.from ? `${change.from} → ${change.path}` : change.path),
    el('span', { class: 'hush' }, `, ${change.kind}`),
    change.unattributed ? el('span', { class: 'chip stalled' }, 'Unattributed') : null,
    el('span', { class: 'push' }), lineCounts(change.added, change.removed));
  head.addEventListener('click', () => {
    body.hidden = !body.hidden;
    head.setAttribute('aria-expanded', String(!body.hidden));
    show();
  });
  const history = el('button', { class: 'link-button small', type: 'button', title: `Every checkpoint in which ${change.path} changed` }, 'History');
  history.addEventListener('click', () => refine({ path: change.path }, false));
  return el('section', { class: 'file', 'aria-label': change.path }, el('div', { class: 'file-line' }, head, history), body);
}
