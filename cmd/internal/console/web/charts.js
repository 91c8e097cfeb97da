// What the fleet has decided over time.
import {$, choose, set} from './dom.js';
import {few} from './text.js';
import {read} from './account.js';

const styles = getComputedStyle(document.documentElement);
const colour = (name) => styles.getPropertyValue('--' + name).trim();
const font = '12px system-ui, sans-serif';

// Lines differ by their dashes, too: not everybody tells all colours apart.
const dashes = {good: undefined, bad: [6, 4], over: [2, 3], false: [10, 3, 2, 3]};

const clock = new Intl.DateTimeFormat('en-GB', {hour: '2-digit', minute: '2-digit'});
const exactly = new Intl.DateTimeFormat('en-GB', {hour: '2-digit', minute: '2-digit', second: '2-digit'});

const axis = (side) => ({
  side, font, size: side === 3 ? 56 : 30, stroke: () => colour('dim'), space: side === 3 ? 30 : 64,
  grid: {stroke: () => colour('line'), width: 1}, ticks: {stroke: () => colour('line'), width: 1, size: 4},
});

class Chart {
  constructor(name, unit, lines, least) {
    this.el = $('chart-' + name);
    this.out = 'read-' + name;
    this.unit = unit;
    this.lines = lines;
    this.values = lines.map(() => []);
    const y = {...axis(3), values: (u, places) => places.map((v) => v >= 10000 ? few.format(v / 1000) + 'k' : few.format(v) + (unit === '%' ? ' %' : ''))};
    const x = {...axis(2), values: (u, places) => places.map((s) => clock.format(s * 1000))};
    this.plot = new uPlot({
      width: this.el.clientWidth, height: this.el.clientHeight, legend: {show: false}, padding: [8, 24, 0, 0],
      cursor: {y: false, drag: {x: false, y: false}, sync: {key: 'time'}, points: {size: 7}},
      scales: {y: {range: (u, min, max) => [0, Math.max(max * 1.1, least)]}},
      axes: [x, y],
      series: [{}, ...lines.map((l) => ({label: l.name, stroke: () => colour(l.kind), width: 2, dash: dashes[l.kind], points: {show: false}}))],
      hooks: {draw: [() => { this.el.dataset.drawn = 'true'; }], setCursor: [() => this.tell()]},
    }, [[], ...lines.map(() => [])], this.el);
    new ResizeObserver(() => this.plot.setSize({width: this.el.clientWidth, height: this.el.clientHeight})).observe(this.el);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.plot.redraw(false));
    this.el.addEventListener('keydown', (event) => this.key(event));
  }

  // draw draws lists of values. One of nothing but zeros has no line, which would cover others, and the legend says so.
  draw(at, lists) {
    this.values = lists;
    const legend = this.el.parentElement.querySelectorAll('.legend li');
    this.plot.setData([at, ...lists.map((list, k) => {
      const none = !list.some((v) => v > 0);
      legend[k].querySelector('.swatch').toggleAttribute('hidden', none);
      legend[k].classList.toggle('none', none);
      return none ? list.map(() => null) : list;
    })]);
  }

  // tell tells the values at the cursor in words.
  tell() {
    const i = this.plot.cursor.idx, at = this.plot.data[0], lists = this.values;
    if (i == null || at[i] == null) { set(this.out, ''); return; }
    const values = this.lines.map((l, k) => l.name + ' ' + (lists[k][i] == null ? '–' : few.format(lists[k][i]) + ' ' + this.unit));
    set(this.out, exactly.format(at[i] * 1000) + ': ' + values.join(', '));
  }

  // The arrow keys move the cursor, for those without a mouse.
  key(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], at = this.plot.data[0];
    if (!step || !at.length) return;
    event.preventDefault();
    const i = Math.min(at.length - 1, Math.max(0, (this.plot.cursor.idx ?? (step > 0 ? -1 : at.length)) + step));
    this.plot.setCursor({left: this.plot.valToPos(at[i], 'x'), top: this.plot.over.clientHeight / 2});
  }
}

const rates = new Chart('rates', 'per second', [{name: 'admitted', kind: 'good'}, {name: 'denied', kind: 'bad'}], 1);
const shares = new Chart('shares', '%', [{name: 'denied', kind: 'bad'}, {name: 'over-admitted', kind: 'over'}, {name: 'falsely denied', kind: 'false'}], 1);

const share = (part, of) => part.map((v, i) => v == null ? null : of[i] > 0 ? 100 * v / of[i] : 0);
const mean = (list) => list.reduce((sum, v) => sum + v, 0) / list.length;

let asked = 0; // only the last answer counts

async function load() {
  const span = document.querySelector('#span input:checked').value, rule = $('history-rule').value, number = ++asked;
  let s;
  try {
    s = await read(await fetch('api/history?' + new URLSearchParams({span, rule})));
  } catch { return; } // away; it is asked again
  if (number !== asked) return;
  const at = s.allowed.map((_, i) => (s.from_ms + i * s.slot_ms) / 1000), all = s.allowed.map((v, i) => v == null ? null : v + s.denied[i]);
  rates.draw(at, [s.allowed, s.denied]);
  shares.draw(at, [share(s.denied, all), share(s.over_admitted, s.allowed), share(s.falsely_denied, all)]);
  const known = s.allowed.map((v, i) => [v, s.denied[i], at[i]]).filter(([v]) => v != null);
  const words = {'15m': '15 minutes', '1h': 'hour', '24h': '24 hours'}[span], of = rule ? ' under ' + rule : '';
  if (!known.length) { set('summary', 'Nothing is known of the last ' + words + of + ' yet.'); return; }
  const most = known.reduce((a, b) => b[0] + b[1] > a[0] + a[1] ? b : a);
  set('summary', 'The last ' + words + of + ': ' + few.format(mean(known.map((k) => k[0]))) + ' admitted and ' + few.format(mean(known.map((k) => k[1]))) +
    ' denied per second on average; at most ' + few.format(most[0] + most[1]) + ' per second together, at ' + clock.format(most[2] * 1000) +
    (known.length < at.length - 1 ? '. Where there is no line, nobody has listened.' : '.'));
}

// offer offers rules to draw.
export function offer(names) { choose('history-rule', names, 'all'); }

// showRule draws a rule's history.
export function showRule(name) {
  $('history-rule').value = name;
  load();
  $('h-history').scrollIntoView({block: 'start'});
}

$('span').addEventListener('change', load);
$('history-rule').addEventListener('change', load);
setInterval(() => { if (!document.hidden) load(); }, 5000);
load();
