// The filter of the Fleet page: its field, the hub's reply to it, and how many GPUs match.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { byId, say } from "../parts/dom.mjs";
import { FilterBox } from "../parts/filter_box.mjs";
import { amount } from "../parts/format.mjs";

const WAIT_MS = 120;

/** @typedef {Pick<Hub.FilterReply, "error" | "at">} FilterError */

export class FleetFilter extends FilterBox {
  goodText = ""; // the last without an error
  /** @type {FilterError | null} */
  error = null;

  /**
   * @param {HTMLElement} root
   * @param {(text: string) => unknown} choose
   */
  constructor(root, choose) {
    super(
      root,
      "filter",
      {
        popover: "filter-popover",
        words: "filter-words",
        placeholder: "util<5 & mem>50%",
        waitMs: WAIT_MS,
      },
      choose,
    );
  }

  /**
   * Returns the filter to send beside a new metric: with a mistaken one the hub keeps the whole former watch.
   * @type {(text: string) => string}
   */
  usable(text) {
    return this.error ? this.goodText : text;
  }

  /**
   * Takes the hub's reply; returns whether it is about the filter `current`.
   * @type {(reply: Hub.FilterReply, current: string) => boolean}
   */
  take({ text, ok, error, at }, current) {
    if (ok) this.goodText = text;
    // What came by an address may have blanks around it.
    if (text.trim() !== current.trim()) return false;
    this.error = ok ? null : { error, at };
    this.markWrong(!ok);
    return true;
  }

  /**
   * Says how many GPUs match, or what is wrong with the filter.
   * @type {(text: string, picture: FleetState, isThen: boolean) => void}
   */
  draw(text, picture, isThen) {
    const words = byId("filter-words");
    words.classList.toggle("wrong", Boolean(this.error));
    if (isThen) say(words, text === "" ? "" : "Filters need live data");
    else if (this.error) say(words, errorWords(this.error, text));
    else
      say(
        words,
        picture.mask === null ? "" : `${amount(picture.matched)} of ${amount(picture.count)} match`,
      );
  }
}

/** @type {(mistake: FilterError, text: string) => string} */
function errorWords({ error, at }, text) {
  if (at === null) return error ?? "";
  const near = text.slice(at, at + 12);
  return near === "" ? `${error} (at the end)` : `${error} (at ${at + 1}: “${near}”)`;
}
