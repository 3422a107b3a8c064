// The quotas of a node, or of one GPU: whether they are in force there, and who of those who are
// there is how near to them.

import { make } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";
import { Panel, note } from "../parts/panel.mjs";
import { LIMITS, barOf, useWords } from "./quota_bars.mjs";

export class QuotaPanel extends Panel {
  /** `what`: "node" or "GPU". */
  constructor(what) {
    super("quota-panel");
    this.what = what;
  }

  refresh(node, gpu = null) {
    const query = gpu === null ? "" : `?gpu=${encodeURIComponent(gpu)}`;
    return this.ask(`nodes/${encodeURIComponent(node)}/quotas${query}`);
  }

  draw(items) {
    const limiting = items.filter(({ holders, is_in_force: inForce }) => holders.length > 0 || !inForce);
    this.put(items, () => [...limiting.map((one) => this.quota(one)), ...this.rest(items, limiting)]);
  }

  rest(items, limiting) {
    if (items.length === 0) return [note(`No quota applies to this ${this.what}. `, make("a", { href: "/quotas" }, "Quotas"))];
    const others = items.length - limiting.length;
    return others === 0 ? [] : [note(`${limiting.length === 0 ? "" : "And "}${plural(others, "quota")} in force without usage here: ${items.filter((one) => !limiting.includes(one)).slice(0, 5).map(({ quota }) => quota).join(", ")}${others > 5 ? " …" : ""}.`)];
  }

  quota(one) {
    const state = one.is_in_force ? [] : [make("span", { class: "pill stale" }, one.is_applied ? "not in force" : "not applied")];
    return make("div", { class: "quota-here" },
      make("p", { title: one.meaning }, make("a", { href: `/quotas#${encodeURIComponent(one.quota)}` }, one.quota), " ", make("span", { class: "pill" }, one.mode), ...state),
      ...(one.is_in_force ? [] : [note(`${one.proof}.`)]),
      make("ul", {}, ...one.holders.map((each) => holderHere(each, this.what))));
  }
}

function holderHere(one, what) {
  const notes = [one.here === null || one.here === one.used ? null : `${LIMITS[one.limit].words(one.here)} on this ${what}`,
    one.goes > 0 ? `${plural(one.goes, "job")} here would be ended` : null].filter(Boolean);
  return make("li", {}, make("span", { class: "holder" }, one.holder), make("span", { class: "numbers" }, useWords(one), one.is_over ? make("span", { class: "pill lost over" }, "over") : null),
    barOf(one), notes.length > 0 ? make("span", { class: "next" }, `${notes.join("; ")}.`) : null);
}
