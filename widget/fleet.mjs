// A hub's fleet: its heatmap, the nodes with free GPUs, and the user's tasks on any node.

/** @import { View, WidgetModel } from "./widget.mjs" */

import { paintPixels, rasterise } from "../assets/parts/cell_pixels.mjs";
import { FULL, palette, stateOf } from "../assets/parts/gauges.mjs";
import { contextOf, make, redraw, say, show } from "../assets/parts/dom.mjs";
import { age, amount, plural, secondsSince, untilWords, when } from "../assets/parts/format.mjs";
import { barOf, useWords } from "./quota_bars.mjs";

/** @type {[string, string][]} */
const METRICS = [
  ["utilization", "Share of the last second in which any kernel ran"],
  ["memory in use", "Share of the GPU's memory"],
];
const GAP = 1;

export class Fleet {
  metric = 0;
  /** @type {Hub.FleetPicture | null} */
  picture = null;
  /** @type {Theme} */
  theme = "light";
  everyS = 1;
  /** Codes of both metrics for all GPUs, then their values. @type {Uint8Array} */
  bytes = new Uint8Array(0);
  /** Places of the cells. @type {CellPlan & { count: number } | null} */
  plan = null;

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.choice = make(
      "select",
      {
        "aria-label": "Metric",
        "onchange": () => {
          this.metric = this.choice.selectedIndex;
          this.draw();
        },
      },
      ...METRICS.map(([name, meaning]) => make("option", { title: meaning }, name)),
    );
    this.hover = make("span", { class: "g-sub", role: "status" });
    this.canvas = make("canvas", {
      class: "g-heat",
      role: "img",
      onpointermove: (/** @type {PointerEvent} */ event) => this.point(event),
      onpointerleave: () => say(this.hover, ""),
    });
    this.free = make("ul", { class: "g-owners g-free" });
    this.quotas = make("ul", { class: "g-quotas" });
    this.own = make("section", { hidden: "" }, make("h4", {}, "Your quota"), this.quotas);
    this.done = make("ul", { class: "g-owners" });
    this.others = make(
      "section",
      { hidden: "" },
      make("h4", {}, "What others did to your tasks"),
      this.done,
    );
    this.leases = make("ul", { class: "g-owners" });
    this.held = make("section", { hidden: "" }, make("h4", {}, "Your leases"), this.leases);
    this.claims = make("ul", { class: "g-owners" });
    this.queue = make("section", { hidden: "" }, make("h4", {}, "In the queue"), this.claims);
    this.root = make(
      "div",
      {},
      make("div", { class: "g-row g-pick" }, this.choice, this.hover),
      this.canvas,
      this.own,
      this.others,
      this.held,
      this.queue,
      make("h4", {}, "Free now"),
      this.free,
    );
  }

  /** @type {(picture: Hub.FleetPicture, theme: Theme, model: WidgetModel) => void} */
  show(picture, theme, model) {
    this.picture = picture;
    this.theme = theme;
    this.everyS = picture.every_s;
    const cells = model.get("cells");
    this.bytes = cells?.byteLength
      ? new Uint8Array(cells.buffer, cells.byteOffset, cells.byteLength)
      : new Uint8Array(0);
    this.view.head(new URL(picture.hub).host, picture.words, picture.detail);
    this.draw();
    this.showQuotas(picture.quotas);
    this.showDone(picture.done);
    this.showPool(picture.leases, picture.claims);
    this.showFree(picture.free);
    this.view.acts.show(
      picture.tasks,
      picture.why_no_tasks || "None of your tasks is on a GPU of this fleet.",
    );
  }

  resize() {
    this.draw();
  }

  /** @type {(quotas: Hub.QuotaPicture[]) => void} */
  showQuotas(quotas) {
    show(this.own, quotas.length > 0);
    redraw(this.quotas, quotas, () =>
      quotas.map((one) =>
        make(
          "li",
          { title: one.sentence },
          make(
            "div",
            { class: "g-row" },
            make(
              "span",
              {},
              make("b", {}, useWords(one)),
              ` ${one.quota}${one.holder.includes(" ") ? `, ${one.holder}` : ""}`,
            ),
            one.is_over ? make("b", { class: "g-over" }, "over") : null,
          ),
          barOf(one),
          one.is_over ? make("span", { class: "g-sub" }, overWords(one)) : null,
        ),
      ),
    );
  }

  /** @type {(done: Hub.DonePicture[]) => void} */
  showDone(done) {
    show(this.others, done.length > 0);
    redraw(this.done, done, () =>
      done.map(({ words, by, host, at, reason }) =>
        make(
          "li",
          {},
          make("b", {}, words),
          make(
            "span",
            { class: "g-sub" },
            ` by ${by} on ${host}, ${when(at)}${reason ? `: “${reason}”` : ""}`,
          ),
        ),
      ),
    );
  }

  /** @type {(leases: Hub.LeasePicture[], claims: Hub.ClaimPicture[]) => void} */
  showPool(leases, claims) {
    show(this.held, leases.length > 0);
    redraw(this.leases, leases, () =>
      leases.map((one) =>
        make(
          "li",
          { title: one.command },
          make("span", {}, `${one.host} · ${leasedWords(one)}`),
          make("span", { class: "g-who g-sub" }, usedWords(one)),
          make("b", {}, `until ${untilWords(one.until)}`),
        ),
      ),
    );
    show(this.queue, claims.length > 0);
    redraw(this.claims, claims, () =>
      claims.map((one) =>
        make(
          "li",
          {},
          make("span", {}, placeWords(one)),
          make("span", { class: "g-who g-sub" }, [one.asks, one.why].filter(Boolean).join(": ")),
          make("b", {}, one.estimate),
        ),
      ),
    );
  }

  /** @type {(free: Hub.FreePicture[]) => void} */
  showFree(free) {
    const rows = free.map(({ host, gpus, name }) =>
      make(
        "li",
        {},
        make("b", {}, host),
        make("span", { class: "g-who g-sub" }, name),
        make("b", {}, plural(gpus, "GPU")),
      ),
    );
    redraw(this.free, free, () =>
      rows.length > 0 ? rows : [make("li", { class: "g-sub" }, "No free GPU.")],
    );
  }

  /**
   * Node after node, a gap between two of them, in as many lines as the width of the notebook's cell makes.
   * @type {(nodes: Hub.NodePicture[], width: number) => CellPlan & { count: number }}
   */
  arrange(nodes, width) {
    const count = nodes.reduce((sum, node) => sum + node.count, 0);
    const side = Math.max(
      3,
      Math.min(18, Math.floor(Math.sqrt((width * 240) / Math.max(1, count)))),
    );
    /** @type {{ y: number, slots: number[], x: number[] }[]} */
    const rows = [];
    let [x, y, slot] = [0, 0, 0];
    /** @type {typeof rows[number] | null} */
    let line = null;
    for (const { count: cells } of nodes) {
      for (let at = 0; at < cells; at++, slot++) {
        if (line === null || x + side > width) {
          y = line === null ? 0 : y + side + GAP;
          x = 0;
          line = { y, slots: [], x: [] };
          rows.push(line);
        }
        line.slots.push(slot);
        line.x.push(x);
        x += side + GAP;
      }
      x += Math.max(2, side / 4);
    }
    return { width, height: Math.max(side, y + side), cellW: side, cellH: side, rows, count };
  }

  draw() {
    const width = Math.floor(this.canvas.parentElement?.clientWidth ?? 0);
    if (width < 20 || this.picture === null) return;
    const plan = this.arrange(this.picture.rows, width);
    this.plan = plan;
    const ratio = globalThis.devicePixelRatio || 1;
    const raster = rasterise(plan, ratio);
    [this.canvas.width, this.canvas.height] = [raster.width, raster.height];
    this.canvas.style.height = `${plan.height}px`;
    const codes = this.bytes.subarray(this.metric * plan.count, (this.metric + 1) * plan.count);
    this.canvas.setAttribute(
      "aria-label",
      `${METRICS[this.metric][0]} of ${plural(plan.count, "GPU")}`,
    );
    if (codes.length === plan.count)
      paintPixels(contextOf(this.canvas), raster, { cells: codes }, palette(this.theme).live);
  }

  /** @type {(event: PointerEvent) => void} */
  point({ clientX, clientY }) {
    if (this.plan === null) return;
    const { left, top } = this.canvas.getBoundingClientRect();
    const { cellW, cellH, rows, count } = this.plan;
    const row = rows.find(({ y }) => clientY - top >= y && clientY - top < y + cellH + GAP);
    const slot =
      row?.slots[row.x.findIndex((x) => clientX - left >= x && clientX - left < x + cellW + GAP)];
    say(this.hover, slot === undefined ? "" : this.words(slot, count));
  }

  /** @type {(slot: number, count: number) => string} */
  words(slot, count) {
    const node = this.nodeOf(slot);
    const code = this.bytes[this.metric * count + slot];
    const values = new DataView(this.bytes.buffer, this.bytes.byteOffset + METRICS.length * count);
    const value = values.getFloat32(4 * (this.metric * count + slot), true);
    const words = code <= FULL ? `${METRICS[this.metric][0]} ${amount(value)} %` : stateOf(code);
    return `${node.host} GPU ${node.place}: ${words}`;
  }

  /** @type {(slot: number) => { host: string, place: string }} */
  nodeOf(slot) {
    let first = 0;
    for (const { host, count, places } of this.picture?.rows ?? []) {
      if (slot < first + count) return { host, place: places[slot - first] };
      first += count;
    }
    return { host: "?", place: "?" };
  }
}

/** @type {(lease: Hub.LeasePicture) => string} */
const leasedWords = ({ gpus, share_pct: share }) =>
  `${share < 100 ? `${Math.round(share)} % of ` : ""}${gpus.length === 1 ? "GPU" : "GPUs"} ${gpus.join(", ")}`;

/** @type {(lease: Hub.LeasePicture) => string} */
const usedWords = ({ idle_since: since }) =>
  since === null ? "in use" : `idle for ${age(secondsSince(since))}`;

/** @type {(claim: Hub.ClaimPicture) => string} */
function placeWords({ place, starts_at: at }) {
  if (at !== null && at > Date.now() / 1000) return `reserved from ${untilWords(at)}`;
  return place === 0 ? "refused" : `number ${place}`;
}

const WOULD = {
  act: "would be ended",
  warn: "would have to be ended; nothing is ended",
  observe: "would have to be ended; mode observe",
};

/** @type {(quota: Hub.QuotaPicture) => string} */
function overWords({ mode, goes, ladder }) {
  if (goes === 0) return "None of its tasks may be ended.";
  return `${plural(goes, "job")} ${WOULD[mode]}${ladder === "" ? "" : `; ${ladder}`}.`;
}
