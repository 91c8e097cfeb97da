// Rules: what another limit would have done, and changing them.
import {$, choose, make} from './dom.js';
import {count, few, keyText, limitText, percent} from './text.js';
import {change, read} from './account.js';

let limits = new Map(), shown = 0; // the limits of rules; the revision that the page shows

// update takes in the rules of a view.
export function update(v) {
  limits = new Map(v.rules.filter((r) => r.limit).map((r) => [r.rule, r.limit]));
  choose('what-if-rule', v.counters);
  suggest();
  shown = v.book.revision;
  $('text').hidden = !shown;
  if ($('text').open && $('text').dataset.revision !== String(shown)) loadText();
}

// suggest suggests half of the present limit, until somebody writes another one.
function suggest() {
  const field = $('what-if-limit'), limit = limits.get($('what-if-rule').value);
  if (!field.dataset.written && limit && document.activeElement !== field) field.value = Math.max(1, Math.round(limit.limit / 2));
}

let asked = 0, answered = 0; // the answer to an earlier question does not take the place of a later one's

async function whatIf() {
  const rule = $('what-if-rule').value, limit = $('what-if-limit').value, to = $('what-if-answer'), number = ++asked;
  try {
    const w = await read(await fetch('api/whatif?' + new URLSearchParams({rule, limit})));
    if (number < answered) return;
    answered = number;
    if (!w.minutes || !w.keys) {
      to.replaceChildren(make('p', {text: 'Nothing is known yet of ' + rule + ': it takes a minute until there is.'}));
      return;
    }
    const hits = Math.max(w.hits, 1), parts = [
      'With ' + limitText({...w.rule, limit: w.limit}) + ', about ' + count.format(Math.round(w.denied)) + ' of ' + count.format(Math.round(w.hits)) + ' hits (' +
        percent(w.denied / hits) + ') of the last ' + w.minutes + ' min would have been denied, of ' + w.limited_keys + ' of ' + w.keys + ' keys.',
      'By the same calculation, the present limit of ' + limitText(w.rule) + ' denies ' + percent(w.denied_by_own_limit / hits) + '.',
    ];
    if (w.window_too_long) parts.push('Its window is longer than the hour that is known, so this is too few.');
    to.replaceChildren(make('p', {text: parts.join(' ')}), make('ul', {}, ...w.most.map((k) => make('li', {},
      make('span', {kind: 'text', text: keyText(k.key)}), ': ' + few.format(k.denied) + ' of ' + few.format(k.hits) + ' denied'))));
  } catch (e) {
    if (number >= answered) to.replaceChildren(make('p', {kind: 'bad', text: e.message}));
  }
}

async function fetchText() {
  const answer = await fetch('api/rules');
  return {text: await answer.text(), revision: Number(answer.headers.get('X-Revision'))};
}

async function loadText() {
  try {
    const {text, revision} = await fetchText();
    $('text').querySelector('pre').textContent = text;
    $('text').dataset.revision = revision;
  } catch { /* away; it is asked again with the next view */ }
}

let compared = null, // the text that has been compared, and the bucket's revision then
  comparison = 0; // its number: the answer of one that is forgotten does not count

function forgetDiff() {
  compared = null;
  comparison++;
  $('apply-rules').hidden = true;
}

const sign = {added: '+', removed: '−', changed: '~'};

function changeRow(c) {
  const item = make('li', {kind: 'change', 'data-what': c.what}, make('span', {kind: 'text', text: sign[c.what] + ' ' + c.rule}), ' ' + c.what);
  const fields = c.fields.map((f) => make('li', {}, f.field + ': ',
    ...(c.what === 'changed' ? [make('del', {text: f.old || '(default)'}), ' → ', make('ins', {text: f.new || '(default)'})] : [f.old + f.new])));
  item.append(make('ul', {}, ...fields));
  return item;
}

async function compare() {
  const text = $('new-text').value;
  forgetDiff();
  const number = comparison;
  try {
    const d = await change('rules/diff', {text});
    if (number !== comparison) return;
    if (d.refused) { $('diff').replaceChildren(make('p', {kind: 'bad text', text: d.refused})); return; }
    const head = d.same ? 'This is the set in force already.' : d.changes.length
      ? 'Compared with revision ' + d.in_force + ', of ' + d.rules + ' rules:' : 'No rule changes; only the text does.';
    $('diff').replaceChildren(make('p', {text: head}), make('ul', {kind: 'changes'}, ...d.changes.map(changeRow)));
    if (d.same) return;
    compared = {text, revision: d.revision};
    $('apply-rules').hidden = false;
  } catch (e) {
    if (number === comparison) $('diff').replaceChildren(make('p', {kind: 'bad text', text: e.message}));
  }
}

async function apply() {
  if (!compared) return;
  const order = compared;
  forgetDiff();
  try {
    const d = await change('rules/apply', order);
    forgetDiff(); // also one with what was in force before
    $('diff').replaceChildren(make('p', {text: 'Written as revision ' + d.revision + '.'}));
  } catch (e) {
    forgetDiff();
    $('diff').replaceChildren(make('p', {kind: 'bad text', text: e.message}));
  }
}

$('ask-what-if').addEventListener('submit', (event) => { event.preventDefault(); whatIf(); });
$('what-if-rule').addEventListener('change', () => { delete $('what-if-limit').dataset.written; suggest(); });
$('what-if-limit').addEventListener('input', () => { $('what-if-limit').dataset.written = 'yes'; });
$('text').addEventListener('toggle', () => { if ($('text').open) loadText(); });
$('new-rules').addEventListener('submit', (event) => { event.preventDefault(); compare(); });
$('new-text').addEventListener('input', forgetDiff); // only what has been looked at is written
$('apply-rules').addEventListener('click', apply);
$('change-rules').addEventListener('toggle', async () => {
  if (!$('change-rules').open || $('new-text').value) return;
  try { $('new-text').value = (await fetchText()).text; } catch { /* away; one can paste */ }
});
