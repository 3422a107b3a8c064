// The History page where a pointer or a key moves the span: what is dragged in the figure becomes fields of the view.
// All else of the page is dashboard/pages/history.py.

/** @import { CommandStore } from "../actions/commands_store.mjs" */

import { strokeOf } from "../parts/page_colours.mjs";
import { plotly } from "../figures/plotly.mjs";
import { afterPause, byId, isShortcut, make, onTheme, targetOf, theme } from "../parts/dom.mjs";
import ReadPage from "../reading/read_page.mjs";
import { Moments, nowS } from "../parts/time_ranges.mjs";

const SETTLE_MS = 250;
const GRAPH = "past-graph";
/** @type {Record<string, [number, number]>} */
const MOVES = { "ArrowLeft": [-1, -1], "ArrowRight": [1, 1], "+": [1, -1], "-": [-2, 2] }; // quarters of the span

/**
 * Plotly shows moments in the browser's zone, and names them so.
 * @type {(shown: unknown) => number}
 */
const secondsOf = (shown) =>
  (typeof shown === "number" ? shown : Date.parse(String(shown).replace(" ", "T"))) / 1000;

// It states no fields: `listen` sets them, and is called before a field would be set.
export default class History extends ReadPage {
  /** @type {(store: CommandStore) => void} */
  listen(store) {
    super.listen(store);
    /** @type {HTMLInputElement} */
    const what = byId("past-what");
    const place = byId("past-place");
    this.moments = new Moments(this.root, "past", (start, end) =>
      this.choose({ start: start.toFixed(0), end: end.toFixed(0), whole: "" }),
    );
    this.zoomed = afterPause(SETTLE_MS, () => {
      this.writeAddress(true);
      this.look();
    });
    what.addEventListener("focus", () => what.select());
    what.addEventListener("focus", () => this.choose({ choices: "listed" }, false), { once: true });
    what.addEventListener("change", () => this.choose({ what: what.value.trim() }));
    byId(GRAPH).addEventListener("answered", (event) => {
      const { detail } = /** @type {CustomEvent<PastFacts>} */ (event);
      if (detail.start === this.view.start && detail.end === this.view.end)
        this.attending = this.attend(detail);
    });
    byId("past-png").addEventListener("click", () => this.savePicture());
    document.addEventListener("keydown", (event) => this.move(event));
    // What somebody drags is not drawn again under their hand.
    place.addEventListener(
      "pointerdown",
      () => {
        this.isHeld = true;
      },
      true,
    );
    addEventListener("pointerup", () => {
      if (this.isHeld) {
        this.isHeld = false;
        this.look();
      }
    });
    onTheme(() => this.colour());
    this.colour();
  }

  get graph() {
    return this.figures.get(GRAPH)?.graph ?? null;
  }

  get isSeen() {
    return super.isSeen && this.isHeld !== true;
  }

  /** The lines' colours, for the chips of their GPUs. */
  colour() {
    for (let at = 0; at < 8; at++)
      this.root.style.setProperty(`--line-${at}`, strokeOf(theme(), at).stroke);
  }

  /** @type {(traits: DOMStringMap, element: HTMLElement) => Promise<void>} */
  async drawFigure(dataset, element) {
    const { request } = dataset;
    if (request === this.figures.get(GRAPH)?.request) return;
    byId("past-place").setAttribute("aria-busy", "true");
    await super.drawFigure(dataset, element);
    await this.attending;
    if ([null, request].includes(this.figures.get(GRAPH)?.request))
      byId("past-place").removeAttribute("aria-busy");
  }

  /**
   * Plotly's element comes a moment after its facts.
   * @type {(facts: PastFacts) => Promise<void>}
   */
  async attend(facts) {
    this.facts = facts;
    this.everyMs = facts.every_s * 1000;
    this.moments?.show(...facts.span);
    const plot = (await this.graph?.plot().catch(() => null)) ?? null;
    if (plot === null || plot === this.plot) return;
    /** @type {any} */
    this.plot = plot;
    plot.on("plotly_relayout", (change) => {
      const [from, to] = [0, 1].map((at) => secondsOf(change[`xaxis.range[${at}]`]));
      if (from < to) this.zoomTo(from, to);
    });
    plot.on("plotly_doubleclick", () => byId("past-back").click());
  }

  /** @type {(start: number, end: number) => void} */
  zoomTo(start, end) {
    if (this.facts === undefined) return;
    const length = Math.max(this.facts.least_s, end - start);
    const until = Math.min(end, Math.max(nowS(), start + length));
    /** @type {[number, number]} */
    const span = [Math.max(0, until - length), until];
    const [from, to] = span.map((t) => t.toFixed(0));
    this.facts.span = span;
    this.number += 1; // what comes of the span before is of no use any more
    Object.assign(this.view, { start: from, end: to, whole: this.view.whole || this.facts.whole });
    this.moments?.show(...span);
    this.zoomed?.();
  }

  /** @type {(event: KeyboardEvent) => void} */
  move(event) {
    const isTaken = event.key.startsWith("Arrow") && targetOf(event).closest("a, button") !== null;
    if (
      this.facts === undefined ||
      isTaken ||
      !Object.hasOwn(MOVES, event.key) ||
      !isShortcut(event)
    )
      return;
    const [start, end] = this.facts.span;
    const [from, to] = MOVES[event.key].map((quarters) => (quarters * (end - start)) / 4);
    event.preventDefault();
    this.zoomTo(start + from, end + to);
  }

  async savePicture() {
    if (this.plot === undefined || this.facts === undefined) return;
    const { toImage } = await plotly();
    const { data, layout } = this.plot;
    const { file, layout: more } = this.facts.picture;
    const href = await toImage(
      { data, layout: { ...layout, ...more } },
      { format: "png", width: Math.max(900, this.plot.clientWidth), height: more.height, scale: 2 },
    );
    make("a", { href, download: file }).click();
  }
}
