// The console's page: shows the fleet as it comes, once a second.
import {$, choose, make, rows, set} from './dom.js';
import {count, few, keyText, limitText, percent, shortName, span} from './text.js';
import {access, comeBack} from './account.js';
import {filter, keyButton, unblockButton} from './keys.js';
import {offer, showRule} from './charts.js';
import * as rules from './rules.js';

export let view = null;

// listed says so if a list is not of all.
function listed(id, list, all, what) {
  set(id, list.length < all ? list.length + ' of ' + count.format(all) + ' ' + what : '');
}

const silentOr = (p) => p.silent ? 'silent for ' + span(p.ago_ms) : span(p.ago_ms) + ' ago';

function showVerdict(v) {
  $('verdict').dataset.state = v.state;
  set('verdict-text', v.text);
  const more = v.findings.length - 1;
  set('verdict-more', v.state === 'good' ? '' : 'Requests go on being decided. ' + (more > 0 ? 'And ' + more + ' more below.' : ''));
  const same = JSON.stringify(v.findings), list = $('findings');
  if (list.dataset.same === same) return;
  list.dataset.same = same;
  list.replaceChildren(...v.findings.map((f, i) => make('li', {'data-state': f.state}, (i ? f.text + ' ' : ''),
    make('a', {href: f.runbook, text: 'What to do: ' + f.alert}))));
}

function showTotals(h) {
  const all = h.allowed_rate + h.denied_rate;
  set('rate-allowed', few.format(h.allowed_rate));
  set('rate-denied', few.format(h.denied_rate));
  set('share-denied', all ? percent(h.denied_rate / all) : '–');
  set('share-over', percent(h.over_share));
  set('share-false', percent(h.false_share));
  set('total-checkers', count.format(h.checkers));
  set('total-aggregators', count.format(h.aggregators));
}

function showFleet(v) {
  const heard = [count.format(v.heard.allowed) + ' admitted and ' + count.format(v.heard.denied) + ' denied since these checkers have started'];
  if (v.heard.silent) heard.push(v.heard.silent + ' silent, and left out of all sums');
  if (v.heard.hellos > v.heard.checkers + v.heard.silent) heard.push(v.heard.hellos + ' checkers report, of which not all tell how they are');
  if (v.checkers.length < v.heard.checkers + v.heard.silent) heard.push(v.checkers.length + ' are listed');
  const losses = v.aggregators.filter((a) => a.loss).map((a) => a.loss).sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
  if (losses.length) heard.push('Redis lost data at ' + new Date(losses[0].at).toLocaleString() + ': ' + losses[0].size + ' of shard ' + losses[0].shard);
  if (!v.connected) heard.push('this aggregator is not connected to NATS');
  set('heard', heard.join('; '));

  rows('checkers', v.checkers, (c) => c.name, (c) => {
    const problem = c.silent ? silentOr(c) : c.problem;
    return {
      state: problem || c.freshness !== 'fresh' ? 'bad' : 'good',
      values: [c.host + ' ' + shortName(c.name), problem || c.freshness, count.format(c.allowed), count.format(c.denied), few.format(c.rate),
        count.format(c.unreported), c.rules_revision ? String(c.rules_revision) : '–', silentOr(c)],
    };
  }, 'no checker has been heard');
  rows('aggregators', v.aggregators, (a) => a.name, (a) => ({
    state: a.silent || !a.ready ? 'bad' : 'good',
    values: [a.host + ' ' + shortName(a.name) + (a.name === v.by ? ' (this one)' : ''), a.silent ? silentOr(a) : a.problem || 'ready',
      a.behind_ms < 0 ? 'idle' : span(a.behind_ms), count.format(a.waiting), count.format(a.reports), count.format(a.errors), silentOr(a)],
  }), 'no aggregator has been heard');
}

function ruleButton(name) {
  const button = make('button', {kind: 'key text', type: 'button', title: 'Draw this rule above', text: name, 'data-same': name});
  button.addEventListener('click', () => showRule(name));
  return button;
}

function showRules(v) {
  listed('rules-listed', v.rules, v.heard.rules, 'rules, the busiest');
  rows('rules', v.rules, (r) => r.rule, (r) => {
    const all = r.allowed_rate + r.denied_rate;
    return {values: [ruleButton(r.rule), limitText(r.limit), count.format(r.allowed), count.format(r.denied), few.format(r.allowed_rate), few.format(r.denied_rate),
      all ? percent(r.denied_rate / all) : '–']};
  }, 'nothing has been decided yet');
  const b = v.book;
  set('book', b.revision ? 'Bucket revision ' + b.revision + ', ' + b.rules + ' rules, written ' + new Date(b.written).toLocaleString() + (b.why ? '; ' + b.why : '')
    : 'From files of the checkers' + (b.why ? '; ' + b.why : '') + '.');
  rules.update(v);
  offer(v.rules.map((r) => r.rule));
}

function showKeys(v) {
  const name = (k) => JSON.stringify([k.rule, k.key]);
  const top = (k) => ({values: [keyButton(k.rule, k.key), few.format(k.rate)]});
  rows('used', v.used, name, top, 'none in the last minute');
  rows('denied', v.denied, name, top, 'no key was denied anything in the last minute');
  set('denied-listed', v.denied.length < v.heard.limited ? v.denied.length + ' of ' + count.format(v.heard.limited) + ' keys, those denied most; estimated'
    : 'Denied in the last minute; estimated');
  rows('near', v.near, name, (k) => ({
    state: k.count > k.limit ? 'bad' : 'good', values: [keyButton(k.rule, k.key), few.format(k.count) + ' of ' + count.format(k.limit), percent(k.count / Math.max(k.limit, 1))],
  }), 'no key has used 80 % of its limit');
  set('near-listed', v.near.length < v.heard.near ? v.near.length + ' of ' + count.format(v.heard.near) + ' keys, the nearest' : 'From 80 % of a limit, as of the last report');
  rows('blocks', v.blocks, name, (b) => ({values: [keyButton(b.rule, b.key), span(b.ends_in_ms), b.by, unblockButton(b)]}), 'no key is blocked');
  listed('blocks-listed', v.blocks, v.heard.blocks, 'blocked keys, the first to end');
  set('blocks-why', v.blocks_why ? 'Blocks cannot be read: ' + v.blocks_why : '');
}

// deed says in words what a line of the audit log is about.
function deed(r) {
  const e = make('span', {'data-same': 'x', text: r.what + ' '});
  if (r.rule) e.append(make('span', {kind: 'text', text: keyText(r.key)}), ' of ' + r.rule + (r.detail ? ', ' : ''));
  e.append((r.detail || '') + (r.error ? ': ' + r.error : ''));
  return e;
}

export function show(v) {
  view = v;
  set('namespace', v.namespace);
  set('version', v.version);
  showVerdict(v.verdict);
  showTotals(v.heard);
  showKeys(v);
  showRules(v);
  showFleet(v);
  rows('audit', v.audit, (r) => JSON.stringify(r), (r) => ({
    state: r.error ? 'bad' : 'good', values: [new Date(r.at).toLocaleString(), r.who.name + ' from ' + r.who.from, deed(r)],
  }), 'nothing has been changed yet');
  choose('rule', v.counters, 'any');
  access(v.can_change);
  filter();
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
  stream.onopen = comeBack;
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

// A page that nobody sees asks for nothing: a browser has few connections to one place, and a phone little battery.
let hiding = 0;
document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => { pause(); live('away', 'paused; what is shown is old'); }, 30000);
  else if (!stream || Date.now() - heard > 3000) listen();
});

listen();
