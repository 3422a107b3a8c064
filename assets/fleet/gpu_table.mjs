// The same numbers as text: for those who cannot see a heatmap, and for those who want to read.

import { make, say, sayOrHide } from "../parts/dom.mjs";
import { oneWord } from "../parts/format.mjs";
import { stateWords } from "./gpu_words.mjs";
import { explain } from "../parts/tips.mjs";

const MOST_ROWS = 200;

export class TableView {
  constructor(root, picture, describe, onOpen) {
    Object.assign(this, { root, picture, describe, onOpen, lines: [], count: make("p", { class: "table-count" }) });
    this.body = make("tbody", {});
    this.head = make("th", { scope: "col", class: "number", tabindex: "0" });
    const heads = ["Node", "GPU", "Model", "Owner", "State"].map((name) => make("th", { scope: "col" }, name));
    root.append(this.count, make("table", {}, make("thead", {}, make("tr", {}, ...heads, this.head)), this.body));
  }

  draw(metric, order) {
    const { picture } = this;
    const lit = order.filter((slot) => picture.isLit(slot));
    const shown = lit.slice(0, MOST_ROWS);
    say(this.head, metric.label);
    explain(this.head, metric.meaning);
    sayOrHide(this.count, lit.length > MOST_ROWS ? `The first ${MOST_ROWS} of ${lit.length} GPUs. Filter to see fewer.` : "");
    while (this.lines.length > shown.length) this.lines.pop().row.remove();
    while (this.lines.length < shown.length) this.lines.push(this.addLine());
    shown.forEach((slot, at) => this.drawLine(this.lines[at], slot));
  }

  addLine() {
    const open = make("button", { type: "button", class: "as-link" });
    const cells = Array.from({ length: 5 }, () => make("td", {}));
    cells[4].className = "number";
    const row = make("tr", {}, make("th", { scope: "row" }, open), ...cells);
    const line = { row, open, cells, slot: null };
    open.addEventListener("click", () => this.onOpen(line.slot));
    this.body.append(row);
    return line;
  }

  drawLine(line, slot) {
    const { picture } = this;
    const state = picture.hasValue(slot) ? "ok" : stateWords(picture.state(slot));
    line.slot = slot;
    say(line.open, picture.host(slot));
    const words = [picture.placeName(slot), picture.modelName(slot), picture.ownerName(slot), state, oneWord(this.describe(slot))];
    words.forEach((word, at) => say(line.cells[at], word));
  }
}
