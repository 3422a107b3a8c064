// A table whose rows stay while their values change, so that focus and readers are left alone.

import { Lines, button, keepFocus, make, redraw, say, show } from "./dom.mjs";
import { moment, when } from "./format.mjs";

/** Columns: {head, text(item)} or {head, draw(cell, item)}, and a `meaning` where the head does not say all; `actions(item)` gives [[word, does, traits]]; `isSteady`: it does not move under a hand. */
export class Rows {
  constructor({ label, columns, key, actions = () => [], empty, isSteady = false }) {
    Object.assign(this, { columns, key, actions, isSteady });
    // On a phone each row is laid out as a card, and a table laid out so must say what it still is.
    this.body = make("tbody", { role: "rowgroup" });
    this.lines = new Lines(this.body, key, () => this.build());
    const heads = [...columns, { head: "" }].map(({ head, meaning = null }) => make("th", { role: "columnheader", scope: "col", title: meaning }, head === "" ? make("span", { class: "unseen" }, "Actions") : head));
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
    this.lines.draw(this.inOrder(items));
  }

  /** Under a pointer, or where somebody is by keyboard, what comes goes to the end. */
  inOrder(items) {
    if (!this.isSteady || !this.body.matches(":hover, :focus-within")) return items;
    const places = new Map([...this.body.children].map((row, at) => [row, at]));
    const place = (item) => places.get(this.lines.byKey.get(this.key(item))?.root) ?? Infinity;
    return items.map((item) => [place(item), item]).sort(([one], [other]) => (one === other ? 0 : one - other)).map(([, item]) => item);
  }

  fail(words) {
    if (this.lines.byKey.size === 0) { say(this.waiting, words); show(this.waiting, true); }
  }

  build() {
    const cells = this.columns.map(({ head }) => make("td", { role: "cell", "data-head": head }));
    const actions = make("td", { role: "cell", class: "row-actions" });
    const newest = {};
    const draw = (item) => {
      newest.item = item;
      this.columns.forEach((column, at) => drawCell(column, cells[at], item));
      this.drawActions(actions, newest);
    };
    return { root: make("tr", { role: "row" }, cells, actions), draw };
  }

  drawActions(place, newest) {
    const actions = this.actions(newest.item);
    // A button that is put anew between press and release is not clicked: it does what is newest.
    const act = (word) => this.actions(newest.item).find(([one]) => one === word)?.[1](newest.item);
    keepFocus(place, () => redraw(place, actions.map(([word, , traits]) => [word, traits]),
      () => actions.map(([word, , traits]) => button(word, () => act(word), traits))));
  }
}

function drawCell({ text, draw }, cell, item) {
  if (draw === undefined) say(cell, text(item));
  else draw(cell, item);
}

/** How long ago or ahead it is; the moment itself is its tooltip. */
export function timeCell(of, never) {
  return (cell, item) => {
    const at = of(item);
    say(cell, when(at, never));
    cell.title = at === null || at === undefined ? "" : moment(at);
  };
}

/** Parts one below the other, beside the column's name on a phone. */
export function stacked(cell, ...pieces) {
  if (cell.firstElementChild === null) cell.append(make("div", { class: "stacked" }));
  parts(cell.firstElementChild, ...pieces);
}

/** A cell of several parts, each drawn once and then only when it changes. */
export function parts(cell, ...pieces) {
  redraw(cell, pieces, () => pieces.filter((piece) => piece !== null).map(([tag, className, words, title]) =>
    make(tag, { class: className, title }, words)));
}
