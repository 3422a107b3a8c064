// A cell of a map: its colour is the metric, a bar is the memory, and marks say what needs a person.

import { FULL, fillCell, drawState, fit, inkAt, setType, stateOf, trace } from "./gauges.mjs";

// What a slot is beside its value, as bits of one number.
export const LEASED = 1;
export const OTHERS = 2; // leased to one, used by another
export const WASTED = 4;
export const PAUSED = 8;
export const WARNING = 16;
export const CRITICAL = 32;
export const CLOSED = 64; // out of service
export const HELD = LEASED | OTHERS;

// Lower than SMALL an outline is too thin to be seen first, and the whole cell is of its state; lower than TINY there is no number.
const SMALL = 24;
export const TINY = 14;
export const FAULTS = new Set(["lost", "error"]);
export const VALUE_FROM = 249;

/** @type {(mask: Uint8Array | null | undefined, slot: number) => boolean} */
export const isMatch = (mask, slot) =>
  mask === null || mask === undefined || (mask[slot >> 3] & (1 << (slot & 7))) !== 0;

/** @type {(h: number) => number} */
export const barHeight = (h) => (h >= 44 ? 4 : h >= SMALL ? 3 : h >= TINY ? 2 : h >= 9 ? 1 : 0);

/** @type {(numbers: Levels | null | undefined, slot: number) => number} */
const at = (numbers, slot) => numbers?.[slot] ?? 0;

/**
 * * Cells with room for text. `shown`, by slot: `cells` as the socket has them, `mask` in bits,
 * `flags` and `memory` (levels); each of these three may be null. `say(slot)` gives {text, unit,
 * name, place, note, past}; what is drawn of it depends on the room.
 * @param {Canvas} context
 * @param {CellPlan} plan
 * @param {ShownCells} shown
 * @param {CellLook} look
 * @param {(slot: number) => CellWords} say
 */
export function paintCells(context, plan, shown, look, say) {
  for (const row of plan.rows) {
    for (let k = 0; k < row.slots.length; k++) {
      const slot = row.slots[k];
      const cell = {
        context,
        x: row.x[k],
        y: row.y,
        w: plan.cellW,
        h: plan.cellH,
        marks: look.marks,
        css: look.css,
      };
      if (isMatch(shown.mask, slot))
        drawCell(
          cell,
          { code: shown.cells[slot], flags: at(shown.flags, slot), memory: at(shown.memory, slot) },
          () => say(slot),
        );
      else fillCell(cell, look.marks.filteredOut);
    }
  }
}

/**
 * `say` null: without words.
 * @param {PlainCell} cell
 * @param {{ code: number, flags: number, memory: number }} shown
 * @param {(() => CellWords) | null} say
 */
export function drawCell(cell, { code, flags, memory }, say = null) {
  const state = stateOf(code);
  const hasValue = code <= FULL || code === VALUE_FROM;
  const now = {
    ...cell,
    code,
    flags,
    isWasted: hasValue && (flags & WASTED) > 0,
    isPaused: hasValue && (flags & PAUSED) > 0,
  };
  if (hasValue) fillCell(now, baseOf(now));
  else if (state !== null)
    drawState(cell.context, state, cell.x, cell.y, cell.w, cell.h, cell.marks);
  if (hasValue) drawMemory(now, memory);
  if (flags & HELD) drawLease(now);
  if (now.isPaused) drawBars(now);
  if (flags & CLOSED) drawClosed(now);
  drawOutline(now, state !== null && FAULTS.has(state));
  drawCorner(now);
  if (say !== null) writeCell(now, say(), hasValue ? null : state);
}

/** @type {(cell: MarkedCell) => string} */
function baseOf({ h, code, flags, isWasted, isPaused, marks, css }) {
  if (isWasted) return h < SMALL ? marks.wasteFill : marks.wasteBase;
  if (isPaused) return h < TINY ? marks.paused : marks.pausedBase;
  if (code === 0 && flags & HELD) return marks.leaseBase;
  return code > FULL ? marks.plain : css[code];
}

/** @type {(cell: MarkedCell, memory: number) => void} */
function drawMemory({ context, x, y, w, h, marks, isWasted, isPaused }, memory) {
  const bar = barHeight(h);
  if (bar === 0 || memory === 0 || memory > FULL) return;
  const inset = h >= 44 ? 8 : h >= SMALL ? 4 : h >= 18 ? 2 : 0;
  const [left, top, room] = [
    x + inset,
    y + h - bar - (h >= 44 ? 7 : h >= SMALL ? 4 : 0),
    w - 2 * inset,
  ];
  if (h >= SMALL) {
    context.globalAlpha = 0.5;
    context.fillStyle = marks.ground;
    context.fillRect(left, top, room, bar);
  }
  context.globalAlpha = isWasted ? 1 : h >= SMALL ? 0.8 : 0.55;
  context.fillStyle = isWasted
    ? h < SMALL
      ? marks.wasteOn
      : marks.waste
    : isPaused
      ? marks.paused
      : marks.memory;
  context.fillRect(left, top, Math.max(1, (room * memory) / FULL), bar);
  context.globalAlpha = 1;
}

// A notch at the upper left; along all of that edge where somebody else uses it.
/** @type {(cell: FlaggedCell) => void} */
function drawLease({ context, x, y, h, flags, marks }) {
  const isOthers = (flags & OTHERS) > 0;
  context.fillStyle = isOthers ? marks.warning : marks.lease;
  if (h < TINY || isOthers) {
    const part = isOthers ? Math.max(2, Math.round(h / 7)) : h;
    for (let down = 0; down < h; down += 2 * part)
      context.fillRect(x, y + down, h < TINY ? 2 : 3, Math.min(part, h - down));
    return;
  }
  corner(context, x, y, h >= 44 ? 11 : h >= SMALL ? 8 : 6);
  context.fill();
}

// Dashes all around: nobody new comes in.
/** @type {(cell: PlainCell) => void} */
function drawClosed({ context, x, y, w, h, marks }) {
  const line = h >= SMALL ? 2 : 1;
  context.strokeStyle = marks.label;
  context.lineWidth = line;
  context.setLineDash(h >= SMALL ? [5, 4] : [3, 2]);
  context.strokeRect(x + line / 2, y + line / 2, w - line, h - line);
  context.setLineDash([]);
}

/** @type {(cell: Pick<PlainCell, "context" | "x" | "y" | "w" | "h" | "marks">) => void} */
export function drawBars({ context, x, y, w, h, marks }) {
  if (h < 9) return;
  const size = Math.min(14, h * 0.34);
  const [midX, midY] = h >= 44 ? [x + w - 18, y + 17] : [x + w / 2, y + h / 2];
  context.fillStyle = h < TINY ? marks.pausedBase : marks.paused;
  for (const side of [-0.42, 0.12])
    context.fillRect(midX + side * size, midY - size / 2, size * 0.3, size);
}

// The line of ground inside is what those see who see no red.
/** @type {(cell: MarkedCell, isFaulty: boolean) => void} */
function drawOutline({ context, x, y, w, h, flags, isWasted, marks }, isFaulty) {
  const colour =
    flags & CRITICAL && !isFaulty ? marks.critical : isWasted && h >= SMALL ? marks.waste : null;
  if (colour === null || h < TINY) return;
  /** @type {[string, number, number][]} */
  const lines = [
    [colour, 2, 1],
    [marks.ground, 1, 2.5],
  ];
  for (const [line, width, inset] of lines) {
    context.strokeStyle = line;
    context.lineWidth = width;
    context.beginPath();
    context.roundRect(x + inset, y + inset, w - 2 * inset, h - 2 * inset, h >= 18 ? 2 : 0);
    context.stroke();
  }
}

/**
 * An alert: a corner at the upper right, whole where it is critical and hollow where it is a
 * warning.
 * @type {(cell: FlaggedCell) => void}
 */
function drawCorner({ context, x, y, w, h, flags, marks }) {
  if (h < TINY || (flags & (CRITICAL | WARNING)) === 0) return;
  alertCorner(context, x + w, y, Math.max(6, Math.min(13, h * 0.3)), (flags & CRITICAL) > 0, marks);
}

/**
 * @param {Canvas} context
 * @param {number} right
 * @param {number} y
 * @param {number} size
 * @param {boolean} isCritical
 * @param {Marks} marks
 */
export function alertCorner(context, right, y, size, isCritical, marks) {
  corner(context, right, y, -(size + 1), size + 1);
  context.fillStyle = isCritical ? marks.critical : marks.ground;
  context.fill();
  context.strokeStyle = isCritical ? marks.ground : marks.warning;
  context.lineWidth = isCritical ? 1 : 2;
  context.lineJoin = "round";
  if (!isCritical) corner(context, right - 1, y + 1, 1 - size, size - 1);
  context.stroke();
}

/**
 * @param {Canvas} context
 * @param {number} x
 * @param {number} y
 * @param {number} across
 * @param {number} down
 */
function corner(context, x, y, across, down = across) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + across, y);
  context.lineTo(x, y + down);
  context.closePath();
}

/** @type {(cell: MarkedCell, state: string | null) => string} */
function inkOf({ h, code, isWasted, isPaused, marks }, state) {
  if (isWasted) return h < SMALL ? marks.wasteOn : marks.wasteInk;
  if (state === null) return code > FULL ? marks.plainInk : inkAt(isPaused ? 0 : code, marks);
  return (
    { stale: marks.staleInk, lost: marks.lostInk, error: marks.lostInk, offline: marks.label }[
      state
    ] ?? marks.quietInk
  );
}

/** @type {(cell: MarkedCell, said: CellWords, state: string | null) => void} */
function writeCell(cell, said, state) {
  const { context, w, h } = cell;
  const ink = (context.fillStyle = inkOf(cell, state));
  // Lower, a state's word would lie on its mark.
  if (w >= 116 && h >= (state === null ? 88 : 116)) writeLarge(cell, ink, said, state !== null);
  else if (h >= 44 && w >= 40) writeMiddle(cell, said, state !== null);
  else if (state === null && !cell.isPaused) writeSmall(cell, said.text);
}

/** @type {(cell: PlainCell, text: string, y: number) => void} */
function centre({ context, x, w }, text, y) {
  // The limit makes fillText slow, and numbers do not need it.
  if (text.length > 3) context.fillText(text, x + w / 2, y, w - 4);
  else context.fillText(text, x + w / 2, y);
}

// At 1,000 cells bold digits are a wall of text.
/** @type {(cell: FlaggedCell, text: string) => void} */
function writeSmall(cell, text) {
  const { context, y, h, flags } = cell;
  setType(context, h >= SMALL || flags ? 600 : 450, h >= SMALL ? 13 : 10.5, "center", "middle");
  centre(cell, text, y + h / 2 - (h >= SMALL ? 2 : 0));
}

/** @type {(cell: FlaggedCell, said: CellWords, isState: boolean) => void} */
function writeMiddle(cell, said, isState) {
  const { context, x, y, w, h, flags } = cell;
  const left = x + 8 + (flags & HELD ? 6 : 0);
  setType(context, 500, 11, "left", "middle");
  context.fillText(
    fit(context, h >= 60 ? said.name : said.place, x + w - 20 - left),
    left,
    y + (h >= 60 ? 14 : 12),
  );
  if (h >= 60)
    context.fillText(fit(context, isState ? said.text : said.note, w - 16), x + 8, y + h - 20);
  if (isState) return;
  setType(context, 600, h >= 60 ? 20 : 16, "center", "middle");
  centre(cell, said.text, h >= 60 ? y + h * 0.44 : y + h / 2 + 1);
}

/** @type {(cell: PlainCell, ink: string, said: CellWords, isState: boolean) => void} */
function writeLarge({ context, x, y, w, h }, ink, said, isState) {
  const pad = Math.min(14, w * 0.08);
  setType(context, 500, 12, "left", "alphabetic");
  context.fillText(fit(context, said.name, w - 2 * pad - 20), x + pad, y + pad + 10);
  context.fillText(fit(context, said.note, w - 2 * pad), x + pad, y + h - 18);
  const size = isState ? 15 : Math.min(44, h * 0.3, w * 0.2);
  setType(context, 620, size, "left", "alphabetic");
  const base = y + pad + 16 + size * (isState ? 1 : 0.86);
  context.fillText(said.text, x + pad, base);
  if (isState) return;
  const past = context.measureText(said.text).width;
  setType(context, 500, Math.max(11, size * 0.42), "left", "alphabetic");
  context.fillText(said.unit, x + pad + past + 4, base);
  const top = base + 8;
  trace(context, said.past, x + pad, top, w - 2 * pad, y + h - 34 - top, ink);
}
