// The same numbers as text: for those who cannot see a heatmap, and for those who want to read.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { Lines, make, say, sayOrHide } from "../parts/dom.mjs";
import { oneWord, plural } from "../parts/format.mjs";
import { leaseAfter, shortModel, standing, stateWords } from "./gpu_words.mjs";
import { explain } from "../parts/tips.mjs";

const MOST_ROWS = 200;

export class TableView {
  /**
   * @param {HTMLElement} root
   * @param {FleetState} picture
   * @param {DescribeSlot} describe
   * @param {(slot: number) => void} onOpen
   */
  constructor(root, picture, describe, onOpen) {
    this.picture = picture;
    this.describe = describe;
    this.onOpen = onOpen;
    this.count = make("p", { class: "table-count" });
    const body = make("tbody", {});
    /** @type {Lines<number>} */
    this.lines = new Lines(
      body,
      (slot) => slot,
      (slot) => this.line(slot),
    );
    this.head = make("th", { scope: "col", class: "number", tabindex: "0" });
    const heads = ["Node", "GPU", "Model", "Owner", "State"].map((name) =>
      make("th", { scope: "col" }, name),
    );
    root.append(
      this.count,
      make("table", {}, make("thead", {}, make("tr", {}, ...heads, this.head)), body),
    );
  }

  /** @type {(metric: Metric, order: number[]) => void} */
  draw(metric, order) {
    const { picture } = this;
    const lit = order.filter((slot) => picture.isLit(slot));
    const rows = lit.slice(0, MOST_ROWS);
    say(this.head, metric.label);
    explain(this.head, metric.meaning);
    sayOrHide(
      this.count,
      lit.length > MOST_ROWS
        ? `The first ${MOST_ROWS} of ${plural(lit.length, "GPU")}. Filter to see fewer.`
        : "",
    );
    this.lines.draw(rows);
  }

  /** @type {(slot: number) => DrawnLine<number>} */
  line(slot) {
    const open = make("button", {
      type: "button",
      class: "as-link",
      onclick: () => this.onOpen(slot),
    });
    const cells = Array.from({ length: 5 }, (_, at) =>
      make("td", { class: at === 4 ? "number" : null }),
    );
    return {
      root: make("tr", {}, make("th", { scope: "row" }, open), cells),
      draw: () => this.drawLine(slot, open, cells),
    };
  }

  /** @type {(slot: number, open: HTMLElement, cells: HTMLElement[]) => void} */
  drawLine(slot, open, cells) {
    const { picture } = this;
    const state = picture.hasValue(slot)
      ? standing(picture, slot)
      : stateWords(picture.state(slot));
    say(open, picture.nodeTitle(slot));
    const words = [
      picture.placeName(slot),
      shortModel(picture.modelName(slot)),
      `${picture.ownerName(slot)}${leaseAfter(picture, slot)}`,
      state,
      oneWord(this.describe(slot)),
    ];
    words.forEach((word, at) => say(cells[at], word));
    cells[3].classList.toggle("wasted", picture.wasted.has(slot));
  }
}
