// Signing in with the token of the server. The link that `piton serve` prints does it without typing; this is for the rest.

import { post } from '../api.js';
import { el, fill } from '../dom.js';
import { acting, trouble } from '../notices.js';

/**
 * @param {() => void} done
 * @returns {import('../types').View}
 */
export function signIn(done) {
  const where = el('div');
  const token = el('input', { id: 'token', name: 'token', type: 'password', autocomplete: 'current-password', required: true, 'aria-describedby': 'token-help' });
  const enter = acting('Sign in', async () => {
    await post('/api/session', { token: token.value.trim() });
    done();
  }, { kind: 'primary', where });
  const form = el('form', { class: 'stack' },
    el('div', { class: 'field' },
      el('label', { for: 'token' }, 'Token'), token,
      el('p', { class: 'help', id: 'token-help' }, 'It is in a file that only the owner of the server can read; ', el('code', null, 'piton serve'), ' says where, and prints a link that signs in without it.')),
    where, el('div', { class: 'actions' }, enter));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    enter.click();
  });
  const problem = new URLSearchParams(location.search).get('problem');
  if (problem) fill(where, trouble(new Error('The link was used already, or is too old. Start the server again for a new one, or sign in with the token.')));
  return {
    title: 'Sign in',
    node: el('div', { class: 'narrow card padded stack' }, el('h1', null, 'Sign in'), form),
  };
}
