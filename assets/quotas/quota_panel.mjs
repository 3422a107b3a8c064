// The quotas of a node, or of one GPU: whether they are in force there, and who of those who are
// there is how near to them. Redrawn only when something of it has changed.

import { itemsOf } from "../parts/api.mjs";
import { keepFocus, make, redraw } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";
import { LIMITS, barOf, useWords } from "./quota_bars.mjs";

const EVERY_MS = 4_000;

export class QuotaPanel {
  /** `what`: "node" or "GPU". */
  constructor(what) {
    Object.assign(this, { what, askedAt: -Infinity });
    this.root = make("div", { class: "quota-panel" }, make("p", { class: "limits-none" }, "Not known yet."));
  }

  /** Asks once in a while; what cannot be asked leaves what is there. */
  async refresh(node, gpu = null) {
    if (performance.now() - this.askedAt < EVERY_MS) return;
    this.askedAt = performance.now();
    const query = gpu === null ? "" : `?gpu=${encodeURIComponent(gpu)}`;
    const items = await itemsOf(`nodes/${encodeURIComponent(node)}/quotas${query}`);
    if (items !== null) this.draw(items);
  }

  draw(items) {
    const limiting = items.filter(({ holders, is_in_force: inForce }) => holders.length > 0 || !inForce);
    keepFocus(this.root, () => redraw(this.root, items, () => [...limiting.map((one) => this.quota(one)), ...this.rest(items, limiting)]));
  }

  rest(items, limiting) {
    if (items.length === 0) return [make("p", { class: "limits-none" }, `No quota is about this ${this.what}. `, make("a", { href: "/quotas" }, "Quotas"))];
    const others = items.length - limiting.length;
    return others === 0 ? [] : [make("p", { class: "limits-none" }, `${limiting.length === 0 ? "" : "And "}${plural(others, "quota")} in force, of which nobody here holds anything: ${items.filter((one) => !limiting.includes(one)).slice(0, 5).map(({ quota }) => quota).join(", ")}${others > 5 ? " …" : ""}.`)];
  }

  quota(one) {
    const state = one.is_in_force ? [] : [make("span", { class: "pill stale" }, one.is_applied ? "not in force" : "not applied")];
    return make("div", { class: "quota-here" },
      make("p", { title: one.meaning }, make("a", { href: `/quotas#${encodeURIComponent(one.quota)}` }, one.quota), " ", make("span", { class: "pill" }, one.mode), ...state),
      ...(one.is_in_force ? [] : [make("p", { class: "limits-none" }, `${one.proof}.`)]),
      make("ul", {}, ...one.holders.map((each) => holderHere(each))));
  }
}

function holderHere(one) {
  const notes = [one.here === null || one.here === one.used ? null : `${one.limit === "gpus" ? plural(one.here, "GPU") : LIMITS[one.limit].words(one.here)} of it here`,
    one.goes > 0 ? `${plural(one.goes, "job")} here would go` : null].filter(Boolean);
  return make("li", {}, make("span", { class: "holder" }, one.holder), make("span", { class: "numbers" }, useWords(one), one.is_over ? make("span", { class: "pill lost over" }, "over") : null),
    barOf(one), notes.length > 0 ? make("span", { class: "next" }, `${notes.join("; ")}.`) : null);
}
