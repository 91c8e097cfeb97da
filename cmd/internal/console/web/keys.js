// One key: looking it up, its card, and what can be done to it.
import {$, make, search} from './dom.js';
import {count, few, keyFields, keyInput, keyText, limitText, span} from './text.js';
import {access, change, read, say, who} from './account.js';

// keyButton shows a key, and looks it up.
export function keyButton(rule, key) {
  const button = make('button', {kind: 'key', type: 'button', title: 'Look this key up'},
    make('span', {kind: 'text', text: keyText(key)}), make('span', {kind: 'rule', text: rule}));
  button.dataset.same = JSON.stringify([rule, key]);
  button.addEventListener('click', () => { fill(rule, key); lookUp(); });
  return button;
}

function fill(rule, key) {
  query = '';
  filter();
  $('rule').value = rule;
  $('key').value = keyInput(key);
}

// wanted is the key in the form.
function wanted() {
  const text = $('key').value, bytes = text.match(/^base64:([A-Za-z0-9+/]+=*)$/);
  return bytes ? {base64: bytes[1]} : text;
}

let lookUps = 0; // only the last one counts

export async function lookUp(quiet) {
  const query = new URLSearchParams({rule: $('rule').value, ...keyFields(wanted())}), number = ++lookUps, found = $('found');
  try {
    const list = await read(await fetch('api/key?' + query));
    if (number !== lookUps) return;
    found.dataset.query = query;
    showCards(list.map(card));
    access();
    if (!quiet) {
      say('');
      $('h-look').scrollIntoView({block: 'nearest'});
    }
  } catch (e) {
    if (number !== lookUps || quiet) return;
    found.replaceChildren();
    say('Look up: ' + e.message);
  }
}

// showCards shows cards in place of those that are there, of which those of the same key stay, with what has the focus.
function showCards(cards) {
  const found = $('found'), old = [...found.children], focused = document.activeElement, what = focused?.dataset.what;
  if (old.length === cards.length && cards.every((e, i) => e.dataset.same === old[i].dataset.same)) {
    cards.forEach((e, i) => old[i].querySelector('.state').replaceWith(e.querySelector('.state')));
    return;
  }
  const at = old.findIndex((e) => e.contains(focused));
  found.replaceChildren(...cards);
  if (at >= 0 && cards[at]) { // the button of a block that has ended is gone
    access();
    (cards[at].querySelector('[data-what="' + what + '"]') || cards[at].querySelector('button'))?.focus({preventScroll: true});
  }
}

// followCards keeps what is shown of a key up to date, unless another one is being written.
export function followCards() {
  const now = String(new URLSearchParams({rule: $('rule').value, ...keyFields(wanted())}));
  if ($('found').firstChild && $('found').dataset.query === now && !document.hidden) lookUp(true);
}

// card shows one key under one rule.
function card(k) {
  const meter = make('meter', {min: 0, max: Math.max(k.limit, 1), high: k.limit * 0.9, 'aria-label': 'use of the limit'});
  meter.value = Math.min(k.count, k.limit);
  const facts = [
    'count ' + few.format(k.count) + ' of ' + count.format(k.limit) + ' (' + limitText(k.rule) + ')', count.format(k.remaining) + ' left',
    k.retry_after_ms ? 'room for one more in ' + span(k.retry_after_ms) : 'room for more now',
    k.free_after_ms ? 'all free in ' + span(k.free_after_ms) : 'all free',
  ];
  if (k.denied) facts.push(count.format(k.denied) + ' denied in the window, at least');
  const state = make('div', {kind: 'state'}, meter, make('p', {kind: 'facts', text: facts.join(' · ')}));
  if (k.block) {
    const under = k.block.rule === k.rule.name ? '' : ', under ' + k.block.rule;
    state.append(make('p', {kind: 'bad', text: 'Blocked for ' + span(k.block.ends_in_ms) + ', until ' + new Date(k.block.until).toLocaleString() + under +
      (k.block.by ? ', by ' + k.block.by : '')}));
  }
  const e = make('div', {kind: 'card', 'data-same': JSON.stringify([k.rule.name, k.key, !!k.block])},
    make('h3', {}, make('span', {kind: 'text', text: keyText(k.key)}), make('span', {kind: 'rule', text: k.rule.name})), state);
  const choice = make('select', {'aria-label': 'for how long', 'data-what': 'span'});
  for (const [text, seconds] of [['1 minute', 60], ['10 minutes', 600], ['1 hour', 3600], ['1 day', 86400], ['7 days', 604800]]) {
    choice.append(make('option', {value: seconds, text}));
  }
  choice.value = 3600;
  const of = {rule: k.rule.name, ...keyFields(k.key)};
  e.append(make('form', {'data-changes': ''}, choice,
    action(k.block ? 'Block for so long from now' : 'Block', 'block', () => ({...of, seconds: Number(choice.value)}), 'Blocked'),
    ...(k.block ? [action('Unblock', 'unblock', () => of, 'Unblocked')] : []), sure(action('Reset count', 'reset', () => of, 'Count reset'))));
  e.querySelector('form').addEventListener('submit', (event) => event.preventDefault());
  return e;
}

// action is a button that changes something.
function action(text, what, body, done) {
  const button = make('button', {type: 'button', text, 'data-what': what});
  if (what !== 'unblock') button.classList.add('danger');
  button.addEventListener('click', async () => {
    if (button.dataset.sure === 'ask' || button.dataset.busy) return;
    button.dataset.busy = 'yes';
    button.setAttribute('aria-disabled', 'true'); // not disabled, which would lose the focus
    try {
      await change(what, body());
      say(done + '.', 'good');
    } catch (e) {
      say(text + ': ' + e.message);
    }
    delete button.dataset.busy;
    button.removeAttribute('aria-disabled');
    setTimeout(followCards, 300); // the aggregator hears of it by itself
  });
  return button;
}

// sure makes a button ask to be pressed twice.
function sure(button) {
  const text = button.textContent;
  button.dataset.sure = 'ask';
  button.addEventListener('click', () => {
    if (button.dataset.sure === 'done') {
      button.dataset.sure = 'ask';
      button.textContent = text;
      return;
    }
    button.dataset.sure = 'done';
    button.textContent = 'Press again to reset';
    setTimeout(() => { button.dataset.sure = 'ask'; button.textContent = text; }, 4000);
  });
  return button;
}

export function unblockButton(b) {
  const button = action('Unblock', 'unblock', () => ({rule: b.rule, ...keyFields(b.key)}), 'Unblocked');
  button.dataset.changes = '';
  button.dataset.same = JSON.stringify([b.rule, b.key]);
  button.hidden = !who;
  return button;
}

let query = ''; // what the lists are searched for

// filter leaves those rows of the lists that have it.
export function filter() {
  const found = search(query);
  const words = query ? count.format(found) + (found === 1 ? ' row of the lists has it' : ' rows of the lists have it') : '';
  if ($('found-rows').textContent !== words) $('found-rows').textContent = words;
}

$('look').addEventListener('submit', (event) => {
  event.preventDefault();
  query = '';
  filter();
  lookUp();
});
$('key').addEventListener('input', () => { query = $('key').value; filter(); });
document.addEventListener('keydown', (event) => {
  const typing = event.target.closest('input, select, textarea');
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    $('key').focus();
  } else if (event.key === 'Escape' && event.target === $('key')) {
    $('key').value = query = '';
    $('found').replaceChildren();
    filter();
    say('');
  }
});
setInterval(followCards, 3000);
