// Elements and tables. All texts that come from the fleet go into the page as text (textContent), never as HTML: a key may be anything.

export const $ = (id) => document.getElementById(id);

// make makes an element with text and children.
export function make(name, {text, kind, ...attributes} = {}, ...children) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// set changes a text that differs: what has not changed is not read out again.
export function set(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

// rows makes a table show a list; each cell is a text or an element. Rows that stay are changed in place, and what has the focus keeps it.
export function rows(id, list, nameOf, cells, none) {
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

// choose makes a select offer names, after a first choice if there is one; what was chosen stays, if it can.
export function choose(id, names, first) {
  const select = $(id), same = JSON.stringify(names);
  if (select.dataset.same === same) return;
  const value = select.value;
  select.replaceChildren(...(first ? [make('option', {value: '', text: first})] : []), ...names.map((n) => make('option', {value: n, text: n})));
  if (names.includes(value)) select.value = value;
  select.dataset.same = same;
}

// The tables that a search goes through.
const searched = ['denied', 'near', 'used', 'rules', 'blocks'];

// search shows only the rows that have a text in them; it returns how many those are.
export function search(text) {
  let found = 0;
  for (const id of searched) {
    for (const row of $(id).tBodies[0].rows) {
      if (row.className === 'empty') continue;
      row.hidden = !row.textContent.toLowerCase().includes(text.toLowerCase());
      if (!row.hidden) found++;
    }
  }
  return found;
}
