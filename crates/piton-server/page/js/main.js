// Starts the page: who is signed in, the bar at the top, and which view the address means. One view is shown at a time;
// the one before is ended, so that nothing goes on listening behind it.

import { Problem, get, line, remove } from './api.js';
import { el, fill, say } from './dom.js';
import { icon } from './icons.js';
import { trouble } from './notices.js';
import { address, route } from './router.js';
import { compare } from './views/compare.js';
import { files } from './views/files.js';
import { home } from './views/home.js';
import { run } from './views/run.js';
import { signIn } from './views/sign-in.js';
import { start } from './views/start.js';
import { store } from './views/store.js';

/** @typedef {import('./types').View} View */
/** @typedef {import('./types').Session} Session */

const main = /** @type {HTMLElement} */ (document.getElementById('main'));
const banner = /** @type {HTMLElement} */ (document.getElementById('banner'));

/** @type {Session | null} */
let session = null;
/** @type {View | null} */
let shown = null;
let place = '';
let turn = 0;

const PLACES = [
  { id: 'home', name: 'Runs', to: address([]) },
  { id: 'files', name: 'Files', to: address(['files']) },
  { id: 'store', name: 'Store', to: address(['store']) },
];

/** @returns {{ id: string, nav: string, make: () => View | Promise<View> }} */
function wanted() {
  const { path } = route();
  const [first = '', second = ''] = path;
  const who = /** @type {Session} */ (session);
  if (first === 'runs' && second) return { id: `run/${second}`, nav: 'home', make: () => run(second, who) };
  if (first === 'files') return { id: 'files', nav: 'files', make: () => files(who) };
  if (first === 'store') return { id: 'store', nav: 'store', make: () => store(who) };
  if (first === 'compare') return { id: `compare/${route().query.toString()}`, nav: 'home', make: () => compare() };
  if (first === 'start') return { id: 'start', nav: 'home', make: () => start() };
  return { id: 'home', nav: 'home', make: () => home(who) };
}

async function show() {
  if (!session) return;
  const { id, nav, make } = wanted();
  for (const link of document.querySelectorAll('.top nav a')) {
    if (link.getAttribute('data-nav') === nav) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (id === place && shown) {
    shown.refined?.();
    return;
  }
  const mine = ++turn;
  shown?.stop?.();
  shown = null;
  const isFirst = place === '';
  place = id;
  /** @type {View} */
  let next;
  try {
    next = await make();
  } catch (error) {
    next = {
      title: 'Problem',
      node: el('div', { class: 'stack' }, trouble(error, () => { place = 'again'; show(); }), el('p', null, el('a', { href: address([]) }, 'To all runs'))),
    };
  }
  if (mine !== turn) {
    next.stop?.();
    return;
  }
  shown = next;
  document.title = `${next.title} · Piton`;
  fill(main, next.node);
  if (!isFirst) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function themeSwitch() {
  const words = /** @type {Record<string, string>} */ ({ auto: 'Colours: as the system', light: 'Colours: light', dark: 'Colours: dark' });
  const button = el('button', { class: 'icon-button', type: 'button', id: 'theme' });
  const now = () => document.documentElement.dataset.theme ?? 'auto';
  const mark = () => {
    fill(button, icon(now()));
    button.setAttribute('aria-label', words[now()] ?? '');
    button.title = words[now()] ?? '';
  };
  button.addEventListener('click', () => {
    const next = /** @type {Record<string, string>} */ ({ auto: 'light', light: 'dark', dark: 'auto' })[now()];
    try {
      if (next === 'auto') localStorage.removeItem('piton.theme');
      else localStorage.setItem('piton.theme', next ?? '');
    } catch {
      // Storage is switched off: the choice holds until the page is closed.
    }
    if (next === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    mark();
  });
  mark();
  return button;
}

function bar() {
  const top = document.getElementById('top');
  if (!top) return;
  const signOut = el('button', { class: 'link-button', type: 'button' }, 'Sign out');
  signOut.addEventListener('click', async () => {
    await remove('/api/session').catch(() => null);
    location.hash = '';
    location.reload();
  });
  fill(top,
    el('a', { class: 'brand', href: address([]), 'aria-label': 'Piton, all runs' }, el('img', { src: '/page/icon.svg', alt: '', width: 26, height: 26 }), el('span', null, 'Piton')),
    session ? el('nav', { 'aria-label': 'Places' }, PLACES.map(({ id, name, to }) => el('a', { href: to, 'data-nav': id }, name))) : null,
    el('span', { class: 'push' }),
    el('div', { class: 'who' },
      session ? el('span', { class: 'role quiet small' }, `Role: ${session.role}`) : null,
      themeSwitch(),
      session ? signOut : null));
}

async function begin() {
  try {
    session = await get('/api/session');
  } catch (error) {
    session = null;
    bar();
    if (error instanceof Problem && error.status === 401) {
      const view = signIn(begin);
      document.title = `${view.title} · Piton`;
      fill(main, view.node);
      return;
    }
    fill(main, trouble(error, begin));
    return;
  }
  bar();
  place = '';
  await show();
}

let looking = false;

/** Looks whether the server is back: what it is asked tells the line. */
async function look() {
  if (looking) return;
  looking = true;
  for (let there = false; !there;) {
    await new Promise((done) => { setTimeout(done, 1500); });
    there = await get('/health').then(() => true, () => false);
  }
  looking = false;
}

line.addEventListener('signed-out', () => {
  if (!session) return;
  session = null;
  shown?.stop?.();
  shown = null;
  begin();
});
line.addEventListener('away', () => {
  say(banner, 'The server does not answer. This page goes on by itself once it is back.');
  look();
});
line.addEventListener('back', () => say(banner, ''));
window.addEventListener('hashchange', show);
window.addEventListener('piton:refined', () => shown?.refined?.());
begin();
