// A table whose rows stay while their values change, so that focus and readers are left alone.

import { make, say, show } from "./dom.mjs";

/** Columns: {head, text(item)} or {head, draw(cell, item)}; `actions(item)` gives [[word, does, traits]]; `isSteady`: it does not move under a hand. */
export class Rows {
  constructor({ label, columns, key, actions = () => [], empty, isSteady = false }) {
    Object.assign(this, { columns, key, actions, isSteady, lines: new Map() });
    // On a phone each row is laid out as a card, and a table laid out so must say what it still is.
    this.body = make("tbody", { role: "rowgroup" });
    const heads = [...columns.map(({ head }) => head), ""].map((head) => make("th", { role: "columnheader", scope: "col" }, head === "" ? make("span", { class: "unseen" }, "Actions") : head));
    this.table = make("table", { class: "rows", role: "table", "aria-label": label },
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)), this.body);
    this.empty = make("p", { class: "none" }, empty);
    this.waiting = make("p", { class: "none", role: "status" }, "Loading …");
    show(this.empty, false);
    show(this.table, false);
    this.root = make("div", { class: "rows-place" }, this.waiting, this.empty, this.table);
  }

  update(items) {
    show(this.waiting, false);
    show(this.empty, items.length === 0);
    show(this.table, items.length > 0);
    const keys = new Set(items.map(this.key));
    for (const [key, line] of this.lines) if (!keys.has(key)) { line.row.remove(); this.lines.delete(key); }
    this.inOrder(items).forEach((item, at) => this.place(this.line(item), at));
  }

  /** Under a pointer, or where somebody is by keyboard, what comes goes to the end. */
  inOrder(items) {
    if (!this.isSteady || !this.body.matches(":hover, :focus-within")) return items;
    const places = new Map([...this.body.children].map((row, at) => [row, at]));
    const place = (item) => places.get(this.lines.get(this.key(item))?.row) ?? Infinity;
    return items.map((item) => [place(item), item]).sort(([one], [other]) => (one === other ? 0 : one - other)).map(([, item]) => item);
  }

  fail(words) {
    if (this.lines.size === 0) { say(this.waiting, words); show(this.waiting, true); }
  }

  place({ row }, at) {
    if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null);
  }

  line(item) {
    const key = this.key(item);
    if (!this.lines.has(key)) this.lines.set(key, this.build());
    const line = this.lines.get(key);
    this.columns.forEach((column, at) => drawCell(column, line.cells[at], item));
    this.drawActions(line, item);
    return line;
  }

  build() {
    const cells = this.columns.map(({ head }) => make("td", { role: "cell", "data-head": head }));
    const actions = make("td", { role: "cell", class: "row-actions" });
    return { row: make("tr", { role: "row" }, ...cells, actions), cells, actions, drawn: null };
  }

  drawActions(line, item) {
    const actions = this.actions(item);
    line.does = new Map(actions.map(([word, does]) => [word, () => does(item)]));
    // A button that is put anew between press and release is not clicked.
    const text = JSON.stringify(actions.map(([word, , traits]) => [word, traits]));
    if (line.drawn === text) return;
    line.drawn = text;
    const focused = line.actions.contains(document.activeElement) ? document.activeElement.textContent : null;
    line.actions.replaceChildren(...actions.map(([word, , traits]) =>
      make("button", { type: "button", class: "button small", onclick: () => line.does.get(word)(), ...traits }, word)));
    [...line.actions.children].find((button) => button.textContent === focused)?.focus();
  }
}

function drawCell({ text, draw }, cell, item) {
  if (draw === undefined) say(cell, text(item));
  else draw(cell, item);
}

/** Parts one below the other, beside the column's name on a phone. */
export function stacked(cell, ...pieces) {
  if (cell.firstElementChild === null) cell.append(make("div", { class: "stacked" }));
  parts(cell.firstElementChild, ...pieces);
}

/** A cell of several parts, each drawn once and then only when it changes. */
export function parts(cell, ...pieces) {
  const text = JSON.stringify(pieces);
  if (cell.dataset.drawn === text) return;
  cell.dataset.drawn = text;
  cell.replaceChildren(...pieces.filter((piece) => piece !== null).map(([tag, className, words, title]) =>
    make(tag, { class: className, title }, words)));
}
