// Who reads the page, and what one may do.
import {$} from './dom.js';

export let who = '';
let token = sessionStorage.getItem('token') || '';
let mayChange = false;

export function say(text, kind) {
  $('message').textContent = text;
  $('message').dataset.kind = kind || 'bad';
}

// access shows what the reader may do; can says whether the console has tokens at all.
export function access(can = mayChange) {
  mayChange = can;
  $('access').textContent = !can ? 'for looking only' : who ? 'signed in as ' + who : '';
  $('sign-in').hidden = !can || !!who;
  $('sign-out').hidden = !who;
  for (const e of document.querySelectorAll('[data-changes]')) e.hidden = !who;
}

export async function read(answer) {
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error || answer.statusText);
  return value;
}

export async function change(what, body) {
  const answer = await fetch('api/' + what, {
    method: 'POST', body: JSON.stringify(body), headers: {'Content-Type': 'application/json', Authorization: 'Bearer ' + token},
  });
  if (answer.status === 401) signOut();
  return read(answer);
}

export function signOut() {
  token = who = '';
  sessionStorage.removeItem('token');
  access();
}

async function signIn() {
  try {
    who = (await change('token', {})).name;
    sessionStorage.setItem('token', token);
    say('');
  } catch (e) {
    say('Sign in: ' + e.message);
  }
  access();
}

// comeBack signs in with the token of before, if there is one.
export function comeBack() {
  if (token && !who) signIn();
}

$('sign-in').querySelector('form').addEventListener('submit', (event) => {
  event.preventDefault();
  $('sign-in').open = false;
  token = $('token').value.trim();
  $('token').value = '';
  signIn();
});
$('sign-out').addEventListener('click', signOut);
