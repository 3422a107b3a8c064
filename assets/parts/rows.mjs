// A table whose rows stay while their values change, so that focus and readers are left alone.

import { Lines, button, keepFocus, make, redraw, say, show } from "./dom.mjs";
import { moment, when } from "./format.mjs";

/** @template I */
export class Rows {
  /**
   * A column has a `meaning` where its head does not say all. `isSteady`: the table does not move
   * under a hand.
   * @param {{
   *   label: string, columns: Column<I>[], key: (item: I) => unknown,
   *   actions?: (item: I) => RowAction<I>[], empty: string, isSteady?: boolean,
   * }} traits
   */
  constructor({ label, columns, key, actions = () => [], empty, isSteady = false }) {
    this.columns = columns;
    this.key = key;
    this.actions = actions;
    this.isSteady = isSteady;
    // On a phone each row is laid out as a card, and a table laid out so must say what it still is.
    this.body = make("tbody", { role: "rowgroup" });
    /** @type {Lines<I>} */
    this.lines = new Lines(this.body, key, () => this.build());
    /** @type {Column<I>[]} */
    const named = [...columns, { head: "" }];
    const heads = named.map(({ head, meaning = null }) => make("th", { role: "columnheader", scope: "col", title: meaning }, head === "" ? make("span", { class: "unseen" }, "Actions") : head));
    this.table = make("table", { class: "rows", role: "table", "aria-label": label },
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)), this.body);
    this.empty = make("p", { class: "none" }, empty);
    this.waiting = make("p", { class: "none", role: "status" }, "Loading …");
    show(this.empty, false);
    show(this.table, false);
    this.root = make("div", { class: "rows-place" }, this.waiting, this.empty, this.table);
  }

  /** @type {(items: I[]) => void} */
  update(items) {
    show(this.waiting, false);
    show(this.empty, items.length === 0);
    show(this.table, items.length > 0);
    this.lines.draw(this.inOrder(items));
  }

  /**
   * Under a pointer, or where somebody is by keyboard, what comes goes to the end.
   * @type {(items: I[]) => I[]}
   */
  inOrder(items) {
    if (!this.isSteady || !this.body.matches(":hover, :focus-within")) return items;
    const places = new Map(Array.from(this.body.children, (row, at) => [row, at]));
    const placeOf = (/** @type {I} */ item) => {
      const row = this.lines.byKey.get(this.key(item))?.root;
      return (row === undefined ? undefined : places.get(row)) ?? Infinity;
    };
    const placed = items.map((item) => ({ place: placeOf(item), item }));
    return placed.sort((one, other) => (one.place === other.place ? 0 : one.place - other.place)).map(({ item }) => item);
  }

  /** @type {(words: string) => void} */
  fail(words) {
    if (this.lines.byKey.size === 0) { say(this.waiting, words); show(this.waiting, true); }
  }

  build() {
    const cells = this.columns.map(({ head }) => make("td", { role: "cell", "data-head": head }));
    const actions = make("td", { role: "cell", class: "row-actions" });
    /** @type {{ item?: I }} */
    const newest = {};
    const draw = (/** @type {I} */ item) => {
      newest.item = item;
      this.columns.forEach((column, at) => drawCell(column, cells[at], item));
      this.drawActions(actions, /** @type {{ item: I }} */ (newest));
    };
    return { root: make("tr", { role: "row" }, cells, actions), draw };
  }

  /** @type {(place: HTMLElement, newest: { item: I }) => void} */
  drawActions(place, newest) {
    const actions = this.actions(newest.item);
    // A button that is put anew between press and release is not clicked: it does what is newest.
    /** @type {(word: string) => unknown} */
    const act = (word) => this.actions(newest.item).find(([one]) => one === word)?.[1](newest.item);
    keepFocus(place, () => redraw(place, actions.map(([word, , traits]) => [word, traits]),
      () => actions.map(([word, , traits]) => button(word, () => act(word), traits))));
  }
}

/** @type {<I>(column: Column<I>, cell: HTMLTableCellElement, item: I) => void} */
function drawCell({ text, draw }, cell, item) {
  if (draw !== undefined) draw(cell, item);
  else if (text !== undefined) say(cell, text(item));
}

/**
 * How long ago or ahead it is; the moment itself is its tooltip.
 * @type {<I>(of: (item: I) => number | null | undefined, never?: string) => (cell: HTMLElement,
 *   item: I) => void}
 */
export function timeCell(of, never) {
  return (cell, item) => {
    const at = of(item);
    say(cell, when(at, never));
    cell.title = at === null || at === undefined ? "" : moment(at);
  };
}

/**
 * Parts one below the other, beside the column's name on a phone.
 * @type {(cell: HTMLElement, ...pieces: (Piece | null)[]) => void}
 */
export function stacked(cell, ...pieces) {
  const place = cell.firstElementChild ?? cell.appendChild(make("div", { class: "stacked" }));
  parts(place, ...pieces);
}

/**
 * A cell of several parts, each drawn once and then only when it changes.
 * @type {(cell: Element, ...pieces: (Piece | null)[]) => void}
 */
export function parts(cell, ...pieces) {
  const some = pieces.filter((piece) => piece !== null);
  redraw(cell, pieces, () => some.map(([tag, className, words, title]) =>
    make(tag, { class: className, title }, words)));
}
