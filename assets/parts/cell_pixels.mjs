// Cells without text, straight into pixels: how a map of thousands is painted.

import {
  CLOSED,
  CRITICAL,
  FAULTS,
  HELD,
  OTHERS,
  PAUSED,
  TINY,
  VALUE_FROM,
  WASTED,
  barHeight,
  drawBars,
  isMatch,
} from "./cells.mjs";
import { FULL, box, drawState, stateOf } from "./gauges.mjs";

const UNDRAWN = 0xffffffff;
const OUT = 0x1fffffff;

/**
 * * Where every cell lies, in device pixels, made once per arrangement. plan: {width, height,
 * cellW, cellH, rows: [{y, slots, x}]} in CSS pixels.
 * @type {(plan: CellPlan, ratio: number) => Raster}
 */
export function rasterise(plan, ratio) {
  /** @type {(value: number) => number} */
  const px = (value) => Math.round(value * ratio);
  return {
    width: Math.max(1, px(plan.width)),
    height: Math.max(1, px(plan.height)),
    w: Math.max(1, px(plan.cellW)),
    h: Math.max(1, px(plan.cellH)),
    ratio,
    cellH: plan.cellH,
    rows: plan.rows.map((row) => ({
      top: px(row.y),
      slots: row.slots,
      left: Int32Array.from(row.x, px),
      drawn: new Uint32Array(row.slots.length).fill(UNDRAWN),
    })),
    tiles: new Map(),
    image: null,
    pixels: null,
    look: null,
  };
}

/**
 * 10,000 of them in a few milliseconds, and only those that look other than before.
 * @param {Canvas} context
 * @param {Raster} raster
 * @param {ShownCells} shown
 * @param {CellLook} look
 */
export function paintPixels(
  context,
  raster,
  { cells, mask = null, flags = null, memory = null },
  look,
) {
  const { width, height, rows, w } = raster;
  raster.image ??= new ImageData(width, height);
  raster.pixels ??= new Uint32Array(raster.image.data.buffer);
  const painted = /** @type {PaintedRaster} */ (raster);
  let [first, last] = [height, 0];
  if (raster.look !== look) {
    raster.look = look;
    raster.tiles.clear();
    raster.pixels.fill(look.markPixels.ground);
    for (const row of rows) row.drawn.fill(UNDRAWN);
    [first, last] = [0, height];
  }
  const hasBar = memory !== null && barHeight(raster.cellH) > 0;
  for (const { top, slots, left, drawn } of rows) {
    let isChanged = false;
    for (let k = 0; k < slots.length; k++) {
      const slot = slots[k];
      // Memory as the pixels that it takes: what trembles less is not drawn again.
      const bar = hasBar && memory[slot] <= FULL ? Math.round((memory[slot] * w) / FULL) : 0;
      const packed = isMatch(mask, slot)
        ? cells[slot] | ((flags === null ? 0 : flags[slot]) << 8) | (bar << 15)
        : OUT;
      if (drawn[k] === packed) continue;
      drawn[k] = packed;
      isChanged = true;
      putCell(painted, top * width + left[k], packed, bar, look);
    }
    if (isChanged) [first, last] = [Math.min(first, top), Math.max(last, top + raster.h)];
  }
  if (last > first) context.putImageData(raster.image, 0, 0, 0, first, width, last - first);
}

/** @type {(raster: PaintedRaster, from: number, packed: number, bar: number, look: CellLook) => void} */
function putCell(raster, from, packed, bar, look) {
  const { pixels, width, w, h, cellH, ratio } = raster;
  const { markPixels } = look;
  if (packed === OUT) {
    block(pixels, width, from, w, h, markPixels.filteredOut);
    return;
  }
  const [code, flags] = [packed & 0xff, (packed >> 8) & 0x7f];
  const isTiled =
    code > FULL ? code !== VALUE_FROM : (flags & PAUSED) > 0 && (flags & (CRITICAL | WASTED)) === 0;
  const isCritical = (flags & CRITICAL) > 0 && code <= VALUE_FROM + 3 && code !== 247;
  if (isTiled && !isCritical) {
    stamp(pixels, width, from, tile(raster, code, code <= FULL, look), w, h);
    if (flags & CLOSED) closed(raster, from, markPixels.label);
    return;
  }
  block(pixels, width, from, w, h, wholeOf(code, flags, isCritical, look));
  if (isCritical) {
    dot(raster, from, markPixels.criticalInk);
    return;
  }
  if (bar > 0) {
    const tall = Math.max(1, Math.round(barHeight(cellH) * ratio));
    block(
      pixels,
      width,
      from + (h - tall) * width,
      bar,
      tall,
      flags & WASTED ? markPixels.wasteOn : barColour(look),
    );
  }
  if (flags & HELD)
    block(
      pixels,
      width,
      from,
      Math.round(2 * ratio),
      h,
      flags & OTHERS ? markPixels.warning : markPixels.lease,
    );
  if (flags & CLOSED) closed(raster, from, markPixels.label);
}

/** @type {(code: number, flags: number, isCritical: boolean, look: CellLook) => number} */
function wholeOf(code, flags, isCritical, { pixels, markPixels }) {
  if (isCritical) return markPixels.critical;
  if (flags & WASTED) return markPixels.wasteFill;
  if (code === 0 && flags & HELD) return markPixels.leaseBase;
  return code > FULL ? markPixels.plain : pixels[code];
}

/**
 * Opaque, between the middle of the scale and the memory's own colour: pixels have no transparency.
 * @type {(look: CellLook) => number}
 */
function barColour(look) {
  look.bar ??= mixed(look.pixels[FULL], look.markPixels.memory);
  return look.bar;
}

/** @type {(one: number, other: number) => number} */
const mixed = (one, other) => (((one & 0xfefefefe) >>> 1) + ((other & 0xfefefefe) >>> 1)) >>> 0;

/** @type {(raster: RasterParts, from: number, colour: number) => void} */
function dot({ pixels, width, w, h }, from, colour) {
  const size = Math.max(2, Math.round(h / 3.5));
  block(
    pixels,
    width,
    from + Math.floor((h - size) / 2) * width + Math.floor((w - size) / 2),
    size,
    size,
    colour,
  );
}

// Its four corners, as far as dashes have room.
/** @type {(raster: RasterParts, from: number, colour: number) => void} */
function closed({ pixels, width, w, h }, from, colour) {
  const [across, down] = [Math.max(1, Math.round(w / 3)), Math.max(1, Math.round(h / 3))];
  for (const top of [from, from + (h - 1) * width])
    for (const left of [0, w - across]) block(pixels, width, top + left, across, 1, colour);
  for (const left of [from, from + w - 1])
    for (const top of [0, h - down]) block(pixels, width, left + top * width, 1, down, colour);
}

// By hand: of so few pixels a call of `fill` or `set` takes longer than they do.
/**
 * @param {Uint32Array} pixels
 * @param {number} width
 * @param {number} from
 * @param {number} w
 * @param {number} h
 * @param {number} colour
 */
function block(pixels, width, from, w, h, colour) {
  for (let y = 0, start = from; y < h; y++, start += width) {
    const end = start + w;
    for (let k = start; k < end; k++) pixels[k] = colour;
  }
}

/**
 * @param {Uint32Array} pixels
 * @param {number} width
 * @param {number} from
 * @param {Uint32Array} source
 * @param {number} w
 * @param {number} h
 */
function stamp(pixels, width, from, source, w, h) {
  for (let y = 0, start = from, k = 0; y < h; y++, start += width) {
    for (let to = start; to < start + w; to++, k++) pixels[to] = source[k];
  }
}

/** @type {(raster: Raster, code: number, isPaused: boolean, look: CellLook) => Uint32Array} */
function tile(raster, code, isPaused, look) {
  const key = isPaused ? "paused" : code;
  const last = raster.tiles.get(key);
  if (last !== undefined) return last;
  const tile = makeTile(raster, code, isPaused, look.marks);
  raster.tiles.set(key, tile);
  return tile;
}

/** @type {(raster: Raster, code: number, isPaused: boolean, marks: Marks) => Uint32Array} */
function makeTile({ w, h, cellH }, code, isPaused, marks) {
  const context = new OffscreenCanvas(w, h).getContext("2d", { willReadFrequently: true });
  if (context === null) throw new Error("this browser draws on no canvas");
  context.fillStyle = marks.ground;
  context.fillRect(0, 0, w, h);
  const state = stateOf(code);
  if (isPaused) {
    context.fillStyle = marks.paused;
    box(context, 0, 0, w, h);
    drawBars({ context, x: 0, y: 0, w, h: cellH < TINY ? h : Math.min(h, 13), marks });
  } else if (state !== null && FAULTS.has(state) && cellH < 9) {
    context.fillStyle = marks.critical;
    context.fillRect(0, 0, w, h);
  } else if (state !== null)
    drawState(
      context,
      state,
      0,
      0,
      w,
      h,
      FAULTS.has(state)
        ? { ...marks, lostBase: marks.critical, lostInk: marks.criticalInk }
        : marks,
    );
  return new Uint32Array(context.getImageData(0, 0, w, h).data.buffer);
}
