// The heatmap on its canvas: arranging, redrawing, pointer and keyboard.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { MARK_ROOM, arrange, neighbour, placesOf, slotAt } from "./grid_layout.mjs";
import { Teller, contextOf, say, show, theme, within } from "../parts/dom.mjs";
import { isSilenced } from "../alerts/alert_words.mjs";
import { CRITICAL, WARNING, alertCorner, paintCells } from "../parts/cells.mjs";
import { paintPixels, rasterise } from "../parts/cell_pixels.mjs";
import { FONT, fit, palette } from "../parts/gauges.mjs";

// A live sort would shuffle cells under the reader's eyes; it settles this often, and never
// while the pointer or the keyboard is in the map.
const RESORT_MS = 5_000;
const PAPER_WIDTH = 760;
const PAPER_RATIO = 2;
// Cells come several times a second: what takes long to draw is drawn less often, down to once.
const REST_TIMES = 20;
const REST_MOST_MS = 900;
const NAME_MARK = 8;
/** @type {Record<string, number>} */
const FLAG_OF = { crit: CRITICAL, warn: WARNING };
/** @type {(alert: Hub.AlertView) => boolean} */
const isMarked = (alert) => alert.severity in FLAG_OF && !isSilenced(alert);
const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];

/**
 * `firing`: what fires on which GPU.
 * @extends {Teller<{
 *   open: { slot: number }, hover: { slot: number | null, x?: number, y?: number }, selection: object,
 * }>}
 */
export class Heatmap extends Teller {
  /** @type {MapPlan | null} */
  plan = null;
  /** @type {Map<number, MapPlace>} */
  places = new Map();
  /** @type {Raster | null} */
  raster = null;
  /** @type {number | null} */
  focus = null;
  /** @type {number | null} */
  anchor = null;
  /** @type {number | null} */
  pending = null;
  /** @type {Set<number>} */
  selected = new Set();
  /** @type {Uint8Array | undefined} */
  drawnFlags;
  /** @type {Record<"redraw_ms" | "arrange_ms", number | null> & Record<"slowest_redraw_ms" | "frames", number>} */
  stats = { redraw_ms: null, slowest_redraw_ms: 0, frames: 0, arrange_ms: null };

  /**
   * @param {FleetState} picture
   * @param {FleetView} view
   * @param {DescribeSlot} describe
   * @param {FiredAlerts} firing
   * @param {HeatmapParts} parts
   */
  constructor(picture, view, describe, firing, parts) {
    super();
    this.picture = picture;
    this.view = view;
    this.describe = describe;
    this.firing = firing;
    this.paintedAt = -Infinity;
    this.arrangedAt = 0;
    this.isFrozen = false;
    this.isPinned = false;
    this.isOnPaper = false;
    this.root = parts.root;
    this.place = parts.place;
    this.stage = parts.stage;
    this.canvas = parts.canvas;
    this.mark = parts.mark;
    this.spoken = parts.spoken;
    this.context = contextOf(this.canvas, { alpha: false });
    this.listen();
  }

  listen() {
    new ResizeObserver(() => this.rearrange()).observe(this.stage);
    this.place.addEventListener("pointermove", (event) => this.onMove(event));
    this.place.addEventListener("pointerleave", () => this.tell("hover", { slot: null }));
    this.place.addEventListener("click", (event) => this.onClick(event));
    this.place.addEventListener("keydown", (event) => this.onKey(event));
    this.place.addEventListener("focus", () => this.onFocus());
    this.place.addEventListener("blur", () => this.markFocus());
    this.firing.addEventListener("change", () => this.redraw());
    document.fonts.ready.then(() => this.rearrange());
  }

  /** Makes the arrangement again at the next paint. */
  rearrange() {
    this.plan = null;
    this.redraw();
  }

  redraw() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.draw();
    });
  }

  /**
   * Draws at once: no frame comes before the page is printed.
   * @type {(isOn: boolean) => void}
   */
  print(isOn) {
    this.isOnPaper = isOn;
    this.plan = null;
    this.draw();
  }

  /**
   * New cells have come; a sorted map may be due for sorting. `isAsked`: somebody waits for them.
   * @type {(isAsked?: boolean) => void}
   */
  refresh(isAsked = false) {
    if (
      !isAsked &&
      performance.now() - this.paintedAt <
        Math.min(REST_MOST_MS, REST_TIMES * (this.stats.redraw_ms ?? 0))
    )
      return;
    const isDue = performance.now() - this.arrangedAt > RESORT_MS;
    const isInUse = this.place.matches(":hover, :focus");
    const isSorted =
      this.view.sort !== "name" || this.view.group === "state" || this.view.group === "owner";
    if (isSorted && isDue && !isInUse) this.plan = null;
    this.redraw();
  }

  draw() {
    if (this.picture.count === 0 || this.stage.clientWidth === 0 || this.root.hidden) return;
    const plan = this.planned();
    const began = performance.now();
    this.paint(plan, this.raster ?? this.fitCanvas(plan));
    this.paintedAt = performance.now();
    const took = this.paintedAt - began;
    this.stats.redraw_ms = took;
    if (this.stats.frames > 0)
      this.stats.slowest_redraw_ms = Math.max(this.stats.slowest_redraw_ms, took);
    this.stats.frames += 1;
    this.markFocus();
  }

  makePlan() {
    const began = performance.now();
    const plan = arrange(this.picture, this.view, this.room(), (text) => this.measure(text));
    this.plan = plan;
    this.places = placesOf(plan);
    this.arrangedAt = performance.now();
    this.fitCanvas(plan);
    this.stats.arrange_ms = performance.now() - began;
    return plan;
  }

  /** @type {() => Room} */
  room() {
    if (this.isOnPaper) return { width: PAPER_WIDTH, height: PAPER_WIDTH, isTouch: false };
    const isTouch = matchMedia("(max-width: 760px)").matches;
    const style = getComputedStyle(this.stage);
    const width =
      this.stage.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = isTouch
      ? Math.max(420, innerHeight * 0.75)
      : this.stage.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    return { width: Math.floor(width), height: Math.floor(height), isTouch };
  }

  /** @type {(text: string) => number} */
  measure(text) {
    this.context.font = `500 11px ${FONT}`;
    return this.context.measureText(text).width;
  }

  /** @type {(plan: MapPlan) => Raster} */
  fitCanvas(plan) {
    const ratio = this.isOnPaper ? PAPER_RATIO : devicePixelRatio || 1;
    const raster = rasterise(plan, ratio);
    this.raster = raster;
    const { width, height } = raster;
    if (this.canvas.width !== width || this.canvas.height !== height)
      Object.assign(this.canvas, { width, height });
    this.canvas.style.width = `${width / ratio}px`;
    this.canvas.style.height = `${height / ratio}px`;
    return raster;
  }

  /** @type {(plan: MapPlan, raster: Raster) => void} */
  paint(plan, raster) {
    const { context, picture } = this;
    const look = palette(theme())[this.isFrozen ? "frozen" : "live"];
    const cells = picture.cells.length >= picture.size ? picture.cells : padded(picture);
    const layers = {
      cells,
      mask: picture.mask,
      flags: (this.drawnFlags = this.flags(plan)),
      memory: picture.memory,
    };
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (plan.hasText) {
      context.fillStyle = look.marks.ground;
      context.fillRect(0, 0, raster.width, raster.height);
      context.setTransform(raster.ratio, 0, 0, raster.ratio, 0, 0);
      paintCells(context, plan, layers, look, (slot) => this.describe(slot));
    } else {
      paintPixels(context, raster, layers, look);
      context.setTransform(raster.ratio, 0, 0, raster.ratio, 0, 0);
    }
    for (const word of plan.words) this.paintWord(word, look.marks);
    this.paintSelection(plan, look.marks);
  }

  /**
   * Returns the flags of the slots, with alerts. A node's alert is marked at its name, if the map shows that;
   * an alert of severity info has no mark.
   * @type {(plan: MapPlan) => Uint8Array}
   */
  flags(plan) {
    const { picture, firing } = this;
    if (picture.flags.length < picture.size) picture.flag();
    if (firing.isCalm) return picture.flags;
    const flags = picture.flags.slice();
    /** @type {(slot: number | undefined, alerts: Hub.AlertView[] | undefined) => void} */
    const mark = (slot, [worst] = []) => {
      if (slot !== undefined && worst !== undefined && isMarked(worst))
        flags[slot] |= FLAG_OF[worst.severity];
    };
    for (const [uuid, alerts] of firing.byGpu) mark(picture.slotOf.get(uuid), alerts);
    const hasNames = firing.byNode.size === 0 || plan.words.some(({ node }) => node !== undefined);
    if (!hasNames)
      for (const slot of picture.present())
        mark(slot, firing.byNode.get(picture.nodeId(slot) ?? ""));
    return flags;
  }

  // A silent node's name stands on dots, as its cells stand in dotted outlines.
  /** @type {(word: MapWord, marks: Marks) => void} */
  paintWord({ text, x, y, room, isHeading, node }, marks) {
    const { context } = this;
    context.textAlign = "left";
    context.textBaseline = "middle";
    const isOffline =
      node !== undefined && node.slots.every((slot) => this.picture.code(slot) === 254);
    context.font = isHeading ? `600 13px ${FONT}` : `500 11px ${FONT}`;
    context.fillStyle = isOffline ? marks.offlineInk : isHeading ? marks.heading : marks.label;
    const [worst] =
      node === undefined
        ? []
        : (this.firing.byNode.get(this.picture.nodeId(node.slots[0]) ?? "") ?? []).filter(isMarked);
    const label = fit(context, text, worst === undefined ? room : room - MARK_ROOM, 3);
    const [ink, half] = [context.fillStyle, isHeading ? 9 : 8];
    context.fillStyle = marks.ground; // else its soft edges add up with each redraw
    context.fillRect(x, y - half, room, 2 * half);
    context.fillStyle = ink;
    context.fillText(label, x, y);
    if (worst !== undefined)
      alertCorner(
        context,
        Math.round(x + context.measureText(label).width + MARK_ROOM),
        Math.round(y - NAME_MARK / 2),
        NAME_MARK,
        worst.severity === "crit",
        marks,
      );
    if (!isOffline) return;
    context.strokeStyle = marks.offlineInk;
    context.lineWidth = 1;
    context.setLineDash([2, 2]);
    context.beginPath();
    context.moveTo(x, y + 8.5);
    context.lineTo(x + context.measureText(label).width, y + 8.5);
    context.stroke();
    context.setLineDash([]);
  }

  /** @type {(plan: MapPlan, marks: Marks) => void} */
  paintSelection(plan, marks) {
    if (this.selected.size === 0) return;
    const { context } = this;
    context.strokeStyle = marks.ring;
    context.lineWidth = plan.cellH >= 14 ? 2 : 1;
    context.beginPath();
    for (const slot of this.selected) {
      const spot = this.spotOf(slot);
      if (spot !== null) context.rect(spot.x + 0.5, spot.y + 0.5, plan.cellW - 1, plan.cellH - 1);
    }
    context.stroke();
  }

  /** @type {(slot: number) => Spot | null} */
  spotOf(slot) {
    if (this.picture.count === 0) return null;
    const { rows } = this.planned();
    const place = this.places.get(slot);
    if (place === undefined) return null;
    const row = rows[place.row];
    return { x: row.x[place.at], y: row.y };
  }

  /** @type {(event: MouseEvent) => number | null} */
  slotOf(event) {
    if (this.plan === null) return null;
    const at = this.canvas.getBoundingClientRect();
    return slotAt(this.plan, event.clientX - at.left, event.clientY - at.top);
  }

  /** @type {(event: PointerEvent) => void} */
  onMove(event) {
    if (event.pointerType === "touch") return;
    const slot = this.slotOf(event);
    this.place.style.cursor = slot === null ? "" : "pointer";
    this.tell("hover", { slot, x: event.clientX, y: event.clientY });
  }

  /** @type {(event: MouseEvent) => void} */
  onClick(event) {
    const slot = this.slotOf(event);
    if (slot === null) return;
    this.setFocus(slot, false);
    if (event.shiftKey) this.selectRange(slot);
    else if (event.ctrlKey || event.metaKey) this.toggle(slot);
    else {
      this.anchor = slot;
      this.tell("open", { slot });
    }
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    if (event.altKey || event.metaKey) return;
    if (ARROWS.includes(event.key)) {
      const next = neighbour(this.planned(), this.places, this.focus, event.key);
      if (next !== null) this.setFocus(next, true);
      if (event.shiftKey && next !== null) this.selectRange(next);
    } else if (event.key === "Enter" && this.focus !== null)
      this.tell("open", { slot: this.focus });
    else if (event.key === " " && this.focus !== null) this.toggle(this.focus);
    else return;
    event.preventDefault();
  }

  onFocus() {
    if (this.picture.count > 0) this.focus ??= this.planned().rows[0]?.slots[0] ?? null;
    this.markFocus();
  }

  /** @type {(slot: number, isSpoken: boolean) => void} */
  setFocus(slot, isSpoken) {
    this.focus = slot;
    this.markFocus(true);
    if (isSpoken) say(this.spoken, this.describe(slot).spoken);
  }

  /** @type {(isScrolled?: boolean) => void} */
  markFocus(isScrolled = false) {
    const spot = this.focus === null ? null : this.spotOf(this.focus);
    const isShown = spot !== null && (this.place.matches(":focus-visible") || this.isPinned);
    show(this.mark, isShown);
    if (!isShown) return;
    this.mark.style.transform = `translate(${spot.x}px, ${spot.y}px)`;
    const { cellW, cellH } = this.planned();
    this.mark.style.width = `${cellW}px`;
    this.mark.style.height = `${cellH}px`;
    if (isScrolled) this.mark.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /**
   * The GPU in the drawer keeps its mark while the drawer is open.
   * @type {(slot: number | null) => void}
   */
  pin(slot) {
    this.isPinned = slot !== null;
    if (slot !== null) this.focus = slot;
    this.markFocus();
  }

  /** @type {(slot: number) => void} */
  toggle(slot) {
    if (!this.selected.delete(slot)) this.selected.add(slot);
    this.anchor = slot;
    this.changed();
  }

  /**
   * The plan in force; between a change and the next paint there is none yet.
   * @type {() => MapPlan}
   */
  planned() {
    return this.plan ?? this.makePlan();
  }

  /** @type {(slot: number) => void} */
  selectRange(slot) {
    const order = this.planned().rows.flatMap((row) => Array.from(row.slots));
    const [from, to] = [order.indexOf(this.anchor ?? slot), order.indexOf(slot)].sort(
      (a, b) => a - b,
    );
    this.anchor ??= slot;
    this.selected = new Set(order.slice(Math.max(0, from), to + 1));
    this.changed();
  }

  clearSelection() {
    this.selected.clear();
    this.changed();
  }

  changed() {
    this.redraw();
    this.tell("selection");
  }
}

/**
 * Returns the elements of a `LiveHeatmap`; the page's own stage, if it is in one, scrolls.
 * @type {(root: HTMLElement) => HeatmapParts}
 */
export const partsOf = (root) => ({
  root,
  place: within(root, ".heatmap"),
  stage: stageOf(root),
  canvas: within(root, "canvas"),
  mark: within(root, ".mark"),
  spoken: within(root, ".live-spoken"),
});

/** @type {(root: HTMLElement) => HTMLElement} */
const stageOf = (root) => root.closest(".stage") ?? within(root, ".live-stage");

// The layout may run a moment ahead of the cells: what is not told yet is unknown.
/** @type {(picture: FleetState) => Uint8Array} */
function padded(picture) {
  const cells = new Uint8Array(picture.size).fill(255);
  cells.set(picture.cells);
  return cells;
}
