// The drawing that the pages and the notebook widget share. Self-contained, because anywidget
// loads a module from a blob, where relative imports do not resolve.

export const FULL = 239;
export const STATES = new Map([
  [247, "error"], [248, "retired"], [249, "unscaled"], [250, "denied"], [251, "unsupported"], [252, "stale"],
  [253, "lost"], [254, "offline"], [255, "unknown"],
]);

/** Null: the code is a level. A code that a newer hub may send and we do not know is unknown. */
export const stateOf = (code) => (code <= FULL ? null : STATES.get(code) ?? "unknown");

// Lightness falls or climbs evenly from end to end, so the order survives every kind of colour
// blindness and a grey print. Stops are OKLCH: lightness, chroma, hue in degrees.
const SCALES = {
  dark: [[0.285, 0.045, 268], [0.41, 0.085, 255], [0.54, 0.1, 218], [0.665, 0.12, 172],
    [0.785, 0.155, 131], [0.9, 0.168, 99]],
  light: [[0.955, 0.025, 110], [0.87, 0.085, 135], [0.755, 0.105, 175], [0.615, 0.105, 220],
    [0.475, 0.12, 258], [0.335, 0.13, 280]],
};

const MARKS = {
  dark: {
    ground: "#0c1117", quiet: "#171e27", quietInk: "#8d9aab", staleBase: "#20272f",
    staleStripe: "#46515f", staleInk: "#d5dde6", lostBase: "#3c1320", lostInk: "#ff8ea2",
    offlineInk: "#7d8a9a", plain: "#3b4654", plainInk: "#f2f5f8", label: "#a6b2c0",
    heading: "#dbe3ec", ink: "#000000", paper: "#ffffff", ring: "#ffffff", alert: "#ff5c7c",
  },
  light: {
    ground: "#f7f9fb", quiet: "#e9edf2", quietInk: "#5c6876", staleBase: "#e3e7ec",
    staleStripe: "#bcc5cf", staleInk: "#26303b", lostBase: "#fbdde2", lostInk: "#b00d33",
    offlineInk: "#6a7684", plain: "#cbd3dc", plainInk: "#10161d", label: "#4d5967",
    heading: "#1c2530", ink: "#000000", paper: "#ffffff", ring: "#0b1118", alert: "#c1002f",
  },
};

const palettes = new Map();

export function palette(theme) {
  if (!palettes.has(theme)) palettes.set(theme, makePalette(theme));
  return palettes.get(theme);
}

function makePalette(theme) {
  const marks = MARKS[theme];
  const colours = Array.from({ length: FULL + 1 }, (_, level) => scaleAt(SCALES[theme], level / FULL));
  const ground = parseHex(marks.ground);
  return {
    theme, marks, colours,
    css: colours.map(toCss),
    ink: colours.map((colour) => bestInk(colour, marks)),
    live: toneTable(colours, ground, 1, false),
    dim: toneTable(colours, ground, 0.2, false),
    frozen: toneTable(colours, ground, 0.75, true),
    frozenDim: toneTable(colours, ground, 0.16, true),
  };
}

function toneTable(colours, ground, alpha, isGrey) {
  const mixed = colours.map((colour) => mix(ground, isGrey ? grey(colour) : colour, alpha));
  return { alpha, isGrey, css: mixed.map(toCss), pixels: Uint32Array.from(mixed, toPixel) };
}

export function scaleAt(stops, share) {
  const at = share * (stops.length - 1);
  const from = Math.min(Math.floor(at), stops.length - 2);
  return oklchToRgb(stops[from].map((value, part) => value + (stops[from + 1][part] - value) * (at - from)));
}

// Björn Ottosson's OKLab matrices, https://bottosson.github.io/posts/oklab/
function oklchToRgb([lightness, chroma, hue]) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map(gamma);
}

function gamma(linear) {
  const part = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055));
}

const parseHex = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const toCss = ([r, g, b]) => `rgb(${r},${g},${b})`;
// Canvas pixels are RGBA bytes; every machine a browser runs on is little-endian.
const toPixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
const mix = (from, to, share) => from.map((part, at) => Math.round(part + (to[at] - part) * share));

function grey([r, g, b]) {
  const even = Math.round(0.3 * r + 0.59 * g + 0.11 * b);
  return [even, even, even];
}

function luminance(colour) {
  const [r, g, b] = colour.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

function bestInk(colour, { ink, paper }) {
  return contrast(colour, parseHex(ink)) >= contrast(colour, parseHex(paper)) ? ink : paper;
}

/** The lowest contrast of any number with its cell: a test holds it above 4.5. */
export function worstInkContrast(theme) {
  const { colours, ink } = palette(theme);
  return Math.min(...colours.map((colour, level) => contrast(colour, parseHex(ink[level]))));
}

/** One state as a pattern and a mark, never as colour alone. */
export function drawState(context, state, x, y, w, h, marks) {
  STATE_DRAWINGS[state]({ context, x, y, w, h, marks, stroke: Math.max(1, Math.min(w, h) / 9) });
}

/** An alert fires on it: a corner, whole where it is critical and hollow where it is not. */
export function drawAlert(context, x, y, w, h, isCritical, marks) {
  drawAlerts(context, [{ x, y }], w, h, isCritical, marks);
}

/** All of one kind, as one path. */
export function drawAlerts(context, spots, w, h, isCritical, marks) {
  const size = Math.max(3, Math.min(14, Math.min(w, h) * 0.45));
  context.beginPath();
  for (const { x, y } of spots) {
    context.moveTo(x + w - size, y);
    context.lineTo(x + w, y);
    context.lineTo(x + w, y + size);
    context.closePath();
  }
  context.lineWidth = size >= 8 ? 2 : 1;
  context.lineJoin = "round";
  context.fillStyle = isCritical || size < 6 ? marks.alert : marks.ground;
  context.strokeStyle = isCritical || size < 6 ? marks.ground : marks.alert;
  context.stroke();
  context.fill();
  if (isCritical || size < 6) return;
  context.stroke();
}

/** Somebody holds a lease on these: a bar at the lower left; along all of that edge, broken, where somebody else uses them. */
export function drawLeases(context, spots, w, h, isOthers, marks) {
  const [wide, tall, part] = leaseBar(w, h, isOthers);
  for (const [colour, width, from] of [[marks.ground, 1, wide], [isOthers ? marks.alert : marks.ring, wide, 0]]) {
    context.beginPath();
    for (const { x, y } of spots) {
      for (let at = h - tall; at < h; at += 2 * part) context.rect(x + from, y + at, width, Math.min(part, h - at));
    }
    context.fillStyle = colour;
    context.fill();
  }
}

/** How wide and tall it is, and its parts. */
function leaseBar(w, h, isOthers) {
  const wide = w >= 58 ? 3 : w >= 6 ? 2 : 1;
  return isOthers ? [wide, h, Math.max(2, Math.round(h / 7))] : [wide, Math.max(2, Math.round(h * 0.45)), h];
}

/** The same in pixels. */
function leasePixels(pixels, width, from, kind, { w, h, ratio }, marks) {
  const [wide, tall, part] = leaseBar(w / ratio, h, kind === OTHERS).map(Math.round);
  const colour = toPixel(parseHex(kind === OTHERS ? marks.alert : marks.ring));
  for (let y = h - tall; y < h; y++) {
    if (Math.floor((y - h + tall) / part) % 2 === 1) continue;
    const start = from + y * width;
    for (let at = start; at < start + wide; at++) pixels[at] = colour;
  }
}

// Of a slot in `leased`; 0: nobody holds it.
export const LEASED = 1;
export const OTHERS = 2;

const STATE_DRAWINGS = {
  retired: () => undefined,
  unscaled: (cell) => fillCell(cell, cell.marks.plain),
  denied: (cell) => drawSign(cell, cell.marks.quiet, cell.marks.quietInk, Math.min(cell.w, cell.h, 44) * 0.24, [[-0.7, 0.7, 0.7, -0.7]], true),
  unsupported: (cell) => drawSign(cell, cell.marks.quiet, cell.marks.quietInk, Math.min(cell.w, cell.h, 40) * 0.24, [[-1, 0, 1, 0]]),
  stale(cell) {
    fillCell(cell, cell.marks.staleBase);
    hatch(cell, cell.marks.staleStripe);
  },
  error: (cell) => drawSign(cell, cell.marks.lostBase, cell.marks.lostInk, Math.min(cell.w, cell.h, 44) * 0.26, [[0, -1, 0, 0.3], [0, 0.8, 0, 1]]),
  lost: (cell) => drawSign(cell, cell.marks.lostBase, cell.marks.lostInk, Math.min(cell.w, cell.h, 44) * 0.26, [[-1, -1, 1, 1], [1, -1, -1, 1]]),
  offline({ context, x, y, w, h, marks }) {
    context.strokeStyle = marks.offlineInk;
    context.lineWidth = 1;
    context.setLineDash(w < 16 ? [2, 2] : [3, 3]);
    context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    context.setLineDash([]);
  },
  unknown(cell) {
    fillCell(cell, cell.marks.quiet);
    const size = Math.min(cell.w, cell.h);
    if (size >= 14) return word(cell, "?", Math.min(18, size * 0.6));
    const dot = Math.max(2, Math.round(size / 4));
    cell.context.fillStyle = cell.marks.quietInk;
    cell.context.fillRect(cell.x + Math.floor((cell.w - dot) / 2), cell.y + Math.floor((cell.h - dot) / 2), dot, dot);
    return undefined;
  },
};

function fillCell({ context, x, y, w, h }, colour) {
  context.fillStyle = colour;
  box(context, x, y, w, h);
}

function box(context, x, y, w, h) {
  if (h < 18) return context.fillRect(x, y, w, h);
  context.beginPath();
  context.roundRect(x, y, w, h, h > 60 ? 6 : 3);
  return context.fill();
}

/** Lines around the middle, in parts of `size`; with a circle where it has one and there is room. */
function drawSign(cell, ground, ink, size, lines, hasCircle = false) {
  const { context, stroke } = cell;
  const [midX, midY] = [cell.x + cell.w / 2, cell.y + cell.h / 2];
  fillCell(cell, ground);
  context.strokeStyle = ink;
  context.lineWidth = Math.min(3, stroke);
  context.lineCap = "round";
  context.beginPath();
  if (hasCircle && size > 3) context.arc(midX, midY, size, 0, 2 * Math.PI);
  for (const [fromX, fromY, toX, toY] of lines) {
    context.moveTo(midX + fromX * size, midY + fromY * size);
    context.lineTo(midX + toX * size, midY + toY * size);
  }
  context.stroke();
}

function hatch({ context, x, y, w, h }, colour) {
  const step = Math.max(4, Math.min(10, Math.min(w, h) / 3));
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = step / 2.6;
  context.beginPath();
  for (let at = -h; at < w; at += step) {
    context.moveTo(x + at, y + h);
    context.lineTo(x + at + h, y);
  }
  context.stroke();
  context.restore();
}

function word({ context, x, y, w, h, marks }, text, size) {
  context.fillStyle = marks.quietInk;
  setType(context, 600, size, "center", "middle");
  context.fillText(text, x + w / 2, y + h / 2 + size * 0.06);
}

function setType(context, weight, size, align, baseline) {
  context.font = `${weight} ${size}px ${FONT}`;
  context.textAlign = align;
  context.textBaseline = baseline;
}

export const FONT = '"Inter Variable", system-ui, sans-serif';

/**
 * Where every cell lies, in device pixels, made once per arrangement.
 * plan: {width, height, cellW, cellH, rows: [{y, slots, x}]} in CSS pixels.
 */
export function rasterise(plan, ratio) {
  const px = (value) => Math.round(value * ratio);
  return {
    width: Math.max(1, px(plan.width)), height: Math.max(1, px(plan.height)),
    w: Math.max(1, px(plan.cellW)), h: Math.max(1, px(plan.cellH)), ratio,
    rows: plan.rows.map((row) => ({ top: px(row.y), slots: row.slots, left: Int32Array.from(row.x, px), drawn: new Uint16Array(row.slots.length) })),
    tiles: new Map(), image: null, look: null,
  };
}

const UNDRAWN = 0xffff;

/** Cells without text, straight into pixels: 10,000 of them in about a millisecond, and only those
 * that look other than before. `leased`: LEASED, OTHERS or 0 by slot; null: nothing is. */
export function paintPixels(context, raster, cells, mask, colours, isFrozen, leased = null) {
  const { width, height, rows } = raster;
  raster.image ??= new ImageData(width, height);
  const pixels = new Uint32Array(raster.image.data.buffer);
  const tones = isFrozen ? [colours.frozenDim, colours.frozen] : [colours.dim, colours.live];
  const look = `${colours.theme} ${isFrozen}`;
  if (raster.look !== look) {
    raster.look = look;
    pixels.fill(toPixel(parseHex(colours.marks.ground)));
    for (const row of rows) row.drawn.fill(UNDRAWN);
  }
  for (const row of rows) {
    for (let at = 0; at < row.slots.length; at++) {
      const slot = row.slots[at];
      const code = cells[slot];
      const isLit = isMatch(mask, slot) ? 1 : 0;
      const lease = leased?.[slot] ?? 0;
      const wanted = (lease << 9) | (isLit << 8) | code;
      if (row.drawn[at] === wanted) continue;
      row.drawn[at] = wanted;
      const from = row.top * width + row.left[at];
      if (code > FULL) stamp(pixels, width, from, tile(raster, code, tones[isLit], colours), raster);
      else block(pixels, width, from, tones[isLit].pixels[code], raster);
      if (lease > 0 && isLit) leasePixels(pixels, width, from, lease, raster, colours.marks);
    }
  }
  context.putImageData(raster.image, 0, 0);
}

function block(pixels, width, from, colour, { w, h }) {
  for (let y = 0, start = from; y < h; y++, start += width) {
    for (let at = start; at < start + w; at++) pixels[at] = colour;
  }
}

export const isMatch = (mask, slot) => mask === null || (mask[slot >> 3] & (1 << (slot & 7))) !== 0;

function stamp(pixels, width, from, source, { w, h }) {
  for (let y = 0; y < h; y++) pixels.set(source.subarray(y * w, (y + 1) * w), from + y * width);
}

function tile(raster, code, tone, colours) {
  const key = `${code} ${tone.alpha} ${tone.isGrey} ${colours.theme}`;
  if (!raster.tiles.has(key)) raster.tiles.set(key, makeTile(raster, code, tone, colours));
  return raster.tiles.get(key);
}

function makeTile({ w, h }, code, tone, { marks }) {
  const context = new OffscreenCanvas(w, h).getContext("2d");
  context.fillStyle = marks.ground;
  context.fillRect(0, 0, w, h);
  context.globalAlpha = Math.max(tone.alpha, 0.3);
  drawState(context, stateOf(code), 0, 0, w, h, marks);
  return new Uint32Array(context.getImageData(0, 0, w, h).data.buffer);
}

/**
 * Cells with room for text. `say(slot)` gives {text, unit, name, note, past}; what is drawn of it
 * depends on the room: the number alone, then name and owner, then the last minute as a line.
 */
export function paintCells(context, plan, cells, mask, colours, isFrozen, say) {
  const tones = isFrozen ? [colours.frozenDim, colours.frozen] : [colours.dim, colours.live];
  for (const row of plan.rows) {
    for (let at = 0; at < row.slots.length; at++) {
      const slot = row.slots[at];
      const isLit = isMatch(mask, slot);
      const cell = { context, x: row.x[at], y: row.y, w: plan.cellW, h: plan.cellH, marks: colours.marks };
      paintCell(cell, cells[slot], tones[isLit ? 1 : 0], isLit, colours, () => say(slot));
    }
  }
  context.globalAlpha = 1;
}

function paintCell(cell, code, tone, isLit, colours, say) {
  const state = stateOf(code);
  cell.context.globalAlpha = 1;
  if (state === null) fillCell(cell, tone.css[code]);
  else {
    cell.context.globalAlpha = isLit ? 1 : 0.3;
    drawState(cell.context, state, cell.x, cell.y, cell.w, cell.h, cell.marks);
  }
  if (!isLit) return;
  const ink = state === null ? inkOn(code, tone, colours) : stateInk(state, cell.marks);
  writeCell(cell, ink, say(), state !== null && state !== "unscaled");
}

const inkOn = (code, tone, colours) =>
  (tone.isGrey ? bestInk(tone.css[code].match(/\d+/g).map(Number), colours.marks) : colours.ink[code]);

function stateInk(state, marks) {
  return { unscaled: marks.plainInk, stale: marks.staleInk, lost: marks.lostInk, error: marks.lostInk, offline: marks.label }[state]
    ?? marks.quietInk;
}

function writeCell(cell, ink, said, isState) {
  const { context, w, h } = cell;
  context.fillStyle = ink;
  // Lower, a state's word would lie on its mark.
  if (w >= 116 && h >= (isState ? 116 : 72)) return writeLarge(cell, ink, said, isState);
  if (w >= 58 && h >= 34) return writeMiddle(cell, said, isState);
  if (!isState) centre(cell, said.text, Math.min(h * 0.56, w * 0.42, 14));
  return undefined;
}

function centre({ context, x, y, w, h }, text, size) {
  setType(context, 560, size, "center", "middle");
  // The limit makes fillText slow, and numbers do not need it.
  if (text.length > 3) context.fillText(text, x + w / 2, y + h / 2 + size * 0.05, w - 2);
  else context.fillText(text, x + w / 2, y + h / 2 + size * 0.05);
}

function writeMiddle({ context, x, y, w, h }, said, isState) {
  const small = Math.min(11, h * 0.24);
  setType(context, 450, small, "left", "alphabetic");
  context.fillText(fit(context, said.name, w - 12), x + 6, y + small + 4);
  if (h >= 48) context.fillText(fit(context, isState ? said.text : said.note, w - 12), x + 6, y + h - 6);
  if (isState) return;
  const size = Math.min(22, h * 0.4);
  setType(context, 600, size, "right", "alphabetic");
  context.fillText(said.text, x + w - 6, y + h / 2 + size * 0.42);
}

function writeLarge({ context, x, y, w, h }, ink, said, isState) {
  const pad = Math.min(14, w * 0.08);
  setType(context, 500, 12, "left", "alphabetic");
  context.fillText(fit(context, said.name, w - 2 * pad), x + pad, y + pad + 10);
  context.fillText(fit(context, said.note, w - 2 * pad), x + pad, y + h - pad);
  const size = isState ? 15 : Math.min(44, h * 0.3, w * 0.2);
  context.font = `620 ${size}px ${FONT}`;
  const base = y + pad + 18 + size * (isState ? 1 : 0.86);
  context.fillText(said.text, x + pad, base);
  if (isState) return undefined;
  const past = context.measureText(said.text).width;
  context.font = `500 ${Math.max(11, size * 0.42)}px ${FONT}`;
  context.fillText(said.unit, x + pad + past + 4, base);
  const top = base + 8;
  return trace(context, said.past, x + pad, top, w - 2 * pad, y + h - pad - 18 - top, ink);
}

/** Cut to the room, down to `least` letters. */
export function fit(context, text, room, least = 1) {
  if (context.measureText(text).width <= room) return text;
  let kept = text;
  while (kept.length > least && context.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}

/** A line of shares 0..1 against time; NaN is a hole, and stays one. */
export function trace(context, past, x, y, w, h, ink) {
  if (!past || h < 10) return;
  context.save();
  context.strokeStyle = ink;
  context.globalAlpha *= 0.55;
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.beginPath();
  let isDown = false;
  for (let at = 0; at < past.length; at++) {
    if (Number.isNaN(past[at])) { isDown = false; continue; }
    const px = x + (at / (past.length - 1)) * w;
    const py = y + (1 - Math.min(1, past[at])) * h;
    if (isDown) context.lineTo(px, py); else context.moveTo(px, py);
    isDown = true;
  }
  context.stroke();
  context.restore();
}
