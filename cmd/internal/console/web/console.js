// The console's page. All texts that come from the fleet go into the page as text (textContent), never as HTML: a key may be anything.
'use strict';

const $ = (id) => document.getElementById(id);
const count = new Intl.NumberFormat('en');
const few = new Intl.NumberFormat('en', {maximumFractionDigits: 1});
let view = null, token = sessionStorage.getItem('token') || '', who = '';

// What cannot be seen, or turns the text beside it round; but not what joins one picture of several.
const unseen = /(\p{Extended_Pictographic}\ufe0f?\u200d(?=\p{Extended_Pictographic}))|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

// A key is a string, or {base64} if it is not text. keyText is one to read.
const keyText = (key) => typeof key !== 'string' ? 'base64:' + key.base64
  : key.replace(unseen, (c, joined) => joined || '\\u{' + c.codePointAt(0).toString(16) + '}') || '(empty)';

// keyInput is one to look up, as a field of a form keeps it.
const keyInput = (key) => typeof key !== 'string' ? 'base64:' + key.base64
  : key.search(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|^base64:/u) < 0 ? key
    : 'base64:' + btoa(String.fromCharCode(...new TextEncoder().encode(key)));

const keyFields = (key) => typeof key === 'string' ? {key} : {key_base64: key.base64};

// make makes an element with text and children.
function make(name, {text, kind, ...attributes} = {}, ...children) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// shortName is a part's name as far as people tell them apart: an epoch is long.
const shortName = (name) => name.split('.').map((part, i, all) => i === all.length - 1 ? part.slice(0, 8) : part).join('.');

// span says how long something is.
function span(ms) {
  if (ms < 0) return 'never';
  if (ms < 1000) return count.format(Math.round(ms)) + ' ms';
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  let s = Math.round(ms / 1000), parts = [];
  for (const [name, length] of units) {
    if (s >= length && parts.length < 2) {
      parts.push(Math.floor(s / length) + ' ' + name);
      s %= length;
    }
  }
  return parts.join(' ');
}

// rows makes a table show a list; each cell is a text or an element. Rows that stay are changed in place, and what has the focus keeps it.
function rows(id, list, nameOf, cells, none) {
  const body = $(id).tBodies[0], old = new Map(), focused = document.activeElement;
  for (const row of body.rows) old.set(row.dataset.name, row);
  const heads = $(id).tHead.rows[0].cells;
  const wanted = list.map((item) => {
    const name = nameOf(item), row = old.get(name) || document.createElement('tr');
    old.delete(name);
    row.dataset.name = name;
    const {state, values} = cells(item);
    row.dataset.state = state || 'good';
    values.forEach((value, i) => {
      const cell = row.cells[i] || row.insertCell();
      cell.className = heads[i].className;
      if (value instanceof Node) {
        if (!cell.firstChild || cell.dataset.same !== value.dataset.same || !value.dataset.same) cell.replaceChildren(value);
        cell.dataset.same = value.dataset.same || '';
      } else if (cell.textContent !== String(value)) cell.textContent = value;
    });
    return row;
  });
  if (!wanted.length && none) {
    const cell = make('td', {text: none, colspan: heads.length});
    wanted.push(make('tr', {kind: 'empty'}, cell));
    wanted[0].dataset.name = '\u0000';
  }
  for (const row of old.values()) row.remove();
  wanted.forEach((row, i) => { if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null); });
  if (body.contains(focused) && document.activeElement !== focused) focused.focus({preventScroll: true}); // its row was moved
}

// spark draws lists of numbers as lines over the same scale.
function spark(lists) {
  const ns = 'http://www.w3.org/2000/svg', svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('class', 'spark');
  svg.setAttribute('viewBox', '0 0 118 24');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const most = Math.max(1e-9, ...lists.flatMap(([, list]) => list || []));
  for (const [kind, list] of lists) {
    if (!list) continue;
    const path = document.createElementNS(ns, 'path');
    path.setAttribute('class', kind);
    path.setAttribute('d', list.map((n, i) => (i ? 'L' : 'M') + (i * 118 / (list.length - 1)).toFixed(1) + ' ' + (23 - 22 * n / most).toFixed(1)).join(''));
    svg.append(path);
  }
  return svg;
}

// keyButton shows a key, and looks it up.
function keyButton(rule, key) {
  const button = make('button', {kind: 'key', type: 'button', title: 'Look this key up'},
    make('span', {kind: 'text', text: keyText(key)}), make('span', {kind: 'rule', text: rule}));
  button.dataset.same = JSON.stringify([rule, key]);
  button.addEventListener('click', () => { fill(rule, key); lookUp(); });
  return button;
}

function limitText(r) {
  if (!r) return '';
  const what = {fixed_window: ', fixed', sliding_log: ', log', token_bucket: ', token bucket', leaky_bucket: ', leaky bucket'}[r.algorithm] || '';
  const unit = {1000: 'second', 60000: 'minute', 3600000: 'hour', 86400000: 'day'}[r.window_ms];
  return count.format(r.limit) + ' per ' + (unit || span(r.window_ms)) + what;
}

// listed says so if a list is not of all.
function listed(id, list, all, what) {
  $(id).textContent = list.length < all ? list.length + ' of ' + count.format(all) + ' ' + what : '';
}

function show(v) {
  view = v;
  const ago = (p) => p.silent ? 'silent for ' + span(p.ago_ms) : span(p.ago_ms) + ' ago';
  $('namespace').textContent = v.namespace;
  $('version').textContent = v.version;
  $('total-allowed').textContent = count.format(v.heard.allowed);
  $('total-denied').textContent = count.format(v.heard.denied);
  $('total-checkers').textContent = count.format(v.heard.checkers);
  $('total-aggregators').textContent = count.format(v.heard.aggregators);
  const heard = [];
  if (v.heard.silent) heard.push(v.heard.silent + ' silent, and left out of all sums');
  if (v.heard.hellos > v.heard.checkers + v.heard.silent) heard.push(v.heard.hellos + ' checkers report, of which not all tell how they are');
  if (v.checkers.length < v.heard.checkers + v.heard.silent) heard.push(v.checkers.length + ' are listed');
  const losses = v.aggregators.filter((a) => a.loss).map((a) => a.loss).sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
  if (losses.length) heard.push('Redis lost data at ' + new Date(losses[0].at).toLocaleString() + ': ' + losses[0].size + ' of shard ' + losses[0].shard);
  if (!v.connected) heard.push('this aggregator is not connected to NATS');
  $('heard').textContent = heard.join('; ');
  listed('rules-listed', v.rules, v.heard.rules, 'rules, the busiest');
  listed('blocks-listed', v.blocks, v.heard.blocks, 'blocked keys, the first to end');

  rows('checkers', v.checkers, (c) => c.name, (c) => {
    const problem = c.silent ? ago(c) : c.problem;
    return {
      state: problem || c.freshness !== 'fresh' ? 'bad' : 'good',
      values: [c.host + ' ' + shortName(c.name), problem || c.freshness, count.format(c.allowed), count.format(c.denied), few.format(c.rate),
        count.format(c.unreported), c.rules_revision ? String(c.rules_revision) : '–', ago(c)],
    };
  }, 'no checker has been heard');
  rows('aggregators', v.aggregators, (a) => a.name, (a) => ({
    state: a.silent || !a.ready ? 'bad' : 'good',
    values: [a.host + ' ' + shortName(a.name) + (a.name === v.by ? ' (this one)' : ''), a.silent ? ago(a) : a.problem || 'ready',
      a.behind_ms < 0 ? 'idle' : span(a.behind_ms), count.format(a.waiting), count.format(a.reports), count.format(a.errors), ago(a)],
  }), 'no aggregator has been heard');
  rows('rules', v.rules, (r) => r.rule, (r) => ({
    values: [make('span', {kind: 'text', text: r.rule, 'data-same': r.rule}), limitText(r.limit), count.format(r.allowed), count.format(r.denied), few.format(r.allowed_rate), few.format(r.denied_rate),
      spark([['good', r.past_allowed], ['bad', r.past_denied]])],
  }), 'nothing has been decided yet');
  const top = (kind) => (k) => ({values: [keyButton(k.rule, k.key), few.format(k.rate), spark([[kind, k.past]])]});
  const name = (k) => JSON.stringify([k.rule, k.key]);
  rows('used', v.used, name, top('good'), 'none in the last minute');
  rows('denied', v.denied, name, top('bad'), 'none in the last minute');
  rows('blocks', v.blocks, name, (b) => ({values: [keyButton(b.rule, b.key), span(b.ends_in_ms), b.by, unblockButton(b)]}),
    'no key is blocked');
  $('blocks-why').textContent = v.blocks_why ? 'Blocks cannot be read: ' + v.blocks_why : '';
  rows('audit', v.audit, (r) => JSON.stringify(r), (r) => ({
    state: r.error ? 'bad' : 'good',
    values: [new Date(r.at).toLocaleString(), r.who.name + ' from ' + r.who.from,
      make('span', {'data-same': 'x', text: r.what + ' '}, make('span', {kind: 'text', text: keyText(r.key)}), ' of ' + r.rule + (r.detail ? ', ' + r.detail : '') + (r.error ? ': ' + r.error : ''))],
  }), 'nothing has been changed yet');

  const b = v.book;
  $('book').textContent = b.revision ? 'Bucket revision ' + b.revision + ', ' + b.rules + ' rules, written ' + new Date(b.written).toLocaleString() + (b.why ? '; ' + b.why : '')
    : 'From files of the checkers' + (b.why ? '; ' + b.why : '') + '.';
  $('text').hidden = !b.revision;
  if ($('text').open && $('text').dataset.revision !== String(b.revision)) loadText();
  options(v.counters);
  access();
}

function options(names) {
  const select = $('rule'), same = JSON.stringify(names);
  if (select.dataset.same === same) return;
  const value = select.value;
  select.replaceChildren(make('option', {value: '', text: 'any'}), ...names.map((n) => make('option', {value: n, text: n})));
  select.value = names.includes(value) ? value : '';
  select.dataset.same = same;
}

async function loadText() {
  try {
    const answer = await fetch('api/rules');
    $('text').querySelector('pre').textContent = await answer.text();
    $('text').dataset.revision = answer.headers.get('X-Revision');
  } catch { /* away; it is asked again with the next view */ }
}

// access says what the reader may do.
function access() {
  const may = view && view.can_change;
  $('access').textContent = !view ? '' : !may ? 'for looking only' : who ? 'signed in as ' + who : '';
  $('sign-in').hidden = !may || !!who;
  $('sign-out').hidden = !who;
  for (const e of document.querySelectorAll('[data-changes]')) e.hidden = !who;
}

function say(text, kind) {
  $('message').textContent = text;
  $('message').dataset.kind = kind || 'bad';
}

async function read(answer) {
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error || answer.statusText);
  return value;
}

async function change(what, body) {
  const answer = await fetch('api/' + what, {
    method: 'POST', body: JSON.stringify(body), headers: {'Content-Type': 'application/json', Authorization: 'Bearer ' + token},
  });
  if (answer.status === 401) signOut();
  return read(answer);
}

function signOut() {
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

function fill(rule, key) {
  $('rule').value = rule;
  $('key').value = keyInput(key);
}

// wanted is the key in the form.
function wanted() {
  const text = $('key').value, bytes = text.match(/^base64:([A-Za-z0-9+/]+=*)$/);
  return bytes ? {base64: bytes[1]} : text;
}

let lookUps = 0; // only the last one counts

async function lookUp(quiet) {
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
function followCards() {
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

function unblockButton(b) {
  const button = action('Unblock', 'unblock', () => ({rule: b.rule, ...keyFields(b.key)}), 'Unblocked');
  button.dataset.changes = '';
  button.dataset.same = JSON.stringify([b.rule, b.key]);
  button.hidden = !who;
  return button;
}

let stream = null, heard = Date.now(), again = 0;

// live says whether the page is up to date.
function live(name, text) {
  const pill = $('live');
  if (pill.dataset.state !== name) pill.textContent = text;
  pill.dataset.state = name;
}

// listen keeps the page up to date.
function listen() {
  pause();
  stream = new EventSource('api/stream');
  heard = Date.now();
  stream.onopen = () => { if (token && !who) signIn(); };
  stream.onmessage = (event) => {
    heard = Date.now();
    live('live', 'live');
    show(JSON.parse(event.data));
  };
  stream.onerror = () => {
    live('away', 'not connected; what is shown is old');
    if (stream?.readyState === EventSource.CLOSED) again = setTimeout(listen, 3000);
  };
}

function pause() {
  clearTimeout(again);
  stream?.close();
  stream = null;
}

// A connection that a phone has slept over is dead, and nobody says so: after a while without news it is made anew.
setInterval(() => {
  if (!stream || Date.now() - heard < 5000) return;
  live('away', 'not connected; what is shown is old');
  if (stream.readyState === EventSource.OPEN && Date.now() - heard > 10000) listen();
}, 1000);
setInterval(followCards, 3000);

// A page that nobody sees asks for nothing: a browser has few connections to one place, and a phone little battery.
let hiding = 0;
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => { pause(); live('away', 'paused; what is shown is old'); }, 30000);
  else if (!stream || Date.now() - heard > 3000) listen();
});

$('look').addEventListener('submit', (event) => { event.preventDefault(); lookUp(); });
$('sign-in').addEventListener('submit', (event) => {
  event.preventDefault();
  token = $('token').value.trim();
  $('token').value = '';
  signIn();
});
$('sign-out').addEventListener('click', signOut);
$('text').addEventListener('toggle', () => { if ($('text').open) loadText(); });
document.addEventListener('keydown', (event) => {
  const typing = event.target.closest('input, select, textarea');
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    $('key').focus();
  } else if (event.key === 'Escape' && event.target === $('key')) {
    $('key').value = '';
    $('found').replaceChildren();
    say('');
  }
});

listen();
