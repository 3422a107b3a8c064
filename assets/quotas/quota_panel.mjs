// The quotas of a node, or of one GPU: whether they are in force there, and how near to them the holders
// there are.

import { make } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";
import { Panel, note } from "../parts/panel.mjs";
import { LIMITS, barOf, useWords } from "./quota_bars.mjs";

const MOST_NAMED = 5;

/** @extends {Panel<Hub.NodeQuotaView>} */
export class QuotaPanel extends Panel {
  /** @param {"node" | "GPU"} what */
  constructor(what) {
    super("quota-panel");
    this.what = what;
  }

  /** @type {(node: string, gpu?: string | null) => Promise<void>} */
  refresh(node, gpu = null) {
    const query = gpu === null ? "" : `?gpu=${encodeURIComponent(gpu)}`;
    return this.ask(`nodes/${encodeURIComponent(node)}/quotas${query}`);
  }

  /** @type {(items: Hub.NodeQuotaView[]) => void} */
  draw(items) {
    const limiting = items.filter(
      ({ holders, is_in_force: inForce }) => holders.length > 0 || !inForce,
    );
    this.put(items, () => [
      ...limiting.map((one) => this.quota(one)),
      ...this.rest(items, limiting),
    ]);
  }

  /** @type {(items: Hub.NodeQuotaView[], limiting: Hub.NodeQuotaView[]) => HTMLElement[]} */
  rest(items, limiting) {
    if (items.length === 0)
      return [
        note(`No quota applies to this ${this.what}. `, make("a", { href: "/quotas" }, "Quotas")),
      ];
    const unused = items.length - limiting.length;
    if (unused === 0) return [];
    const names = items
      .filter((one) => !limiting.includes(one))
      .slice(0, MOST_NAMED)
      .map(({ quota }) => quota)
      .join(", ");
    const more = unused > MOST_NAMED ? " …" : "";
    return [
      note(
        `${limiting.length === 0 ? "" : "And "}${plural(unused, "quota")} in force without usage here: ${names}${more}.`,
      ),
    ];
  }

  /** @type {(one: Hub.NodeQuotaView) => HTMLElement} */
  quota(one) {
    const state = one.is_in_force
      ? []
      : [make("span", { class: "pill stale" }, one.is_applied ? "not in force" : "not applied")];
    return make(
      "div",
      { class: "quota-here" },
      make(
        "p",
        { title: one.meaning },
        make("a", { href: `/quotas#${encodeURIComponent(one.quota)}` }, one.quota),
        " ",
        make("span", { class: "pill" }, one.mode),
        ...state,
      ),
      ...(one.is_in_force ? [] : [note(`${one.proof}.`)]),
      make("ul", {}, ...one.holders.map((each) => holderHere(each, this.what))),
    );
  }
}

/** @type {(one: Hub.NodeQuotaHolderView, what: string) => HTMLElement} */
function holderHere(one, what) {
  const notes = [
    one.here === null || one.here === one.used
      ? null
      : `${LIMITS[one.limit].words(one.here)} on this ${what}`,
    one.goes > 0 ? `${plural(one.goes, "job")} here would be ended` : null,
  ].filter(Boolean);
  return make(
    "li",
    {},
    make("span", { class: "holder" }, one.holder),
    make(
      "span",
      { class: "numbers" },
      useWords(one),
      one.is_over ? make("span", { class: "pill lost over" }, "over") : null,
    ),
    barOf(one),
    notes.length > 0 ? make("span", { class: "next" }, `${notes.join("; ")}.`) : null,
  );
}
