// The drawing that the pages and the notebook widget share. Self-contained, because anywidget
// loads a module from a blob, where relative imports do not resolve.

export const FULL = 239;
export const STATES = new Map([
  [247, "error"],
  [248, "retired"],
  [249, "unscaled"],
  [250, "denied"],
  [251, "unsupported"],
  [252, "stale"],
  [253, "lost"],
  [254, "offline"],
  [255, "unknown"],
]);

/**
 * Null: the code is a level. A code that a newer hub may send and we do not know is unknown.
 * @type {(code: number) => string | null}
 */
export const stateOf = (code) => (code <= FULL ? null : (STATES.get(code) ?? "unknown"));

// One family of blue, so that amber, red and violet stay apart from it for every kind of colour
// blindness. Busy is a quiet middle, idle recedes into the ground, and one ink fits both ends.
const SCALES = {
  dark: ["#1f252c", "#273542", "#2d4657", "#30576b", "#33687b", "#387989"],
  light: ["#dfe5eb", "#d1deea", "#b5cee1", "#99bfd7", "#7db0ca", "#60a1bd"],
};

// Amber: wasted, or a warning. Red: critical or lost. Violet: paused. Teal: leased.
const MARKS = {
  dark: {
    ground: "#0c1117",
    quiet: "#171e27",
    quietInk: "#8d9aab",
    staleBase: "#20272f",
    staleStripe: "#46515f",
    staleInk: "#d5dde6",
    lostBase: "#3c1320",
    lostInk: "#ff8ea2",
    offlineInk: "#7d8a9a",
    plain: "#3b4654",
    plainInk: "#f2f5f8",
    label: "#a6b2c0",
    heading: "#dbe3ec",
    ring: "#ffffff",
    digit: "#f2f6fa",
    digitIdle: "#8d9aab",
    memory: "#c3d0dc",
    waste: "#ffc53d",
    wasteFill: "#ffc53d",
    wasteBase: "#3a2c0c",
    wasteInk: "#ffd98a",
    wasteOn: "#1d1503",
    warning: "#ffc53d",
    critical: "#f44f5d",
    criticalInk: "#ffffff",
    paused: "#b59be6",
    pausedBase: "#2b2540",
    lease: "#5fc9bc",
    leaseBase: "#16302f",
    filteredOut: "#141a21",
  },
  light: {
    ground: "#f7f9fb",
    quiet: "#e9edf2",
    quietInk: "#5c6876",
    staleBase: "#e3e7ec",
    staleStripe: "#a9b4c0",
    staleInk: "#26303b",
    lostBase: "#fbdde2",
    lostInk: "#a80027",
    offlineInk: "#6a7684",
    plain: "#cbd3dc",
    plainInk: "#10161d",
    label: "#4d5967",
    heading: "#1c2530",
    ring: "#0b1118",
    digit: "#0b1118",
    digitIdle: "#55616e",
    memory: "#2c4356",
    waste: "#a65b00",
    wasteFill: "#e09200",
    wasteBase: "#ffe3a8",
    wasteInk: "#5c3200",
    wasteOn: "#1d1503",
    warning: "#a65b00",
    critical: "#a80027",
    criticalInk: "#ffffff",
    paused: "#6b3fb0",
    pausedBase: "#e6dcf7",
    lease: "#00736f",
    leaseBase: "#d3ece9",
    filteredOut: "#f0f3f6",
  },
};

/** @type {Map<string, Palette>} */
const palettes = new Map();

/**
 * `live`, and `frozen`, the same in grey: {css, pixels} by level, and `marks`.
 * @type {(theme: Theme) => Palette}
 */
export function palette(theme) {
  const last = palettes.get(theme);
  if (last !== undefined) return last;
  const fresh = makePalette(theme);
  palettes.set(theme, fresh);
  return fresh;
}

/** @type {(theme: Theme) => Palette} */
function makePalette(theme) {
  const live = lookOf(MARKS[theme], SCALES[theme]);
  return {
    theme,
    marks: live.marks,
    css: live.css,
    live,
    frozen: lookOf(mapped(MARKS[theme], inGrey), SCALES[theme].map(inGrey)),
  };
}

/** @type {(marks: Marks, scale: string[]) => CellLook} */
function lookOf(marks, scale) {
  const stops = scale.map(parseHex);
  const colours = Array.from({ length: FULL + 1 }, (_, level) => scaleAt(stops, level / FULL));
  return {
    marks,
    css: colours.map(toCss),
    pixels: Uint32Array.from(colours, toPixel),
    markPixels: mapped(marks, pixelOf),
  };
}

/**
 * @type {<K extends string, V>(values: Record<K, string>, of: (value: string) => V) => Record<K,
 *   V>}
 */
const mapped = (values, of) =>
  /** @type {any} */ (
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name, of(/** @type {string} */ (value))]),
    )
  );

/** @type {(stops: number[][], share: number) => number[]} */
function scaleAt(stops, share) {
  const at = share * (stops.length - 1);
  const from = Math.min(Math.floor(at), stops.length - 2);
  return stops[from].map((value, part) =>
    Math.round(value + (stops[from + 1][part] - value) * (at - from)),
  );
}

/** @type {(hex: string) => number[]} */
const parseHex = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
/** @type {(parts: number[]) => string} */
const toCss = ([r, g, b]) => `rgb(${r},${g},${b})`;
// Canvas pixels are RGBA bytes; every machine a browser runs on is little-endian.
/** @type {(parts: number[]) => number} */
const toPixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
/** @type {(hex: string) => number} */
export const pixelOf = (hex) => toPixel(parseHex(hex));

/** @type {(hex: string) => string} */
function inGrey(hex) {
  const [r, g, b] = parseHex(hex);
  const even = Math.round(0.3 * r + 0.59 * g + 0.11 * b)
    .toString(16)
    .padStart(2, "0");
  return `#${even}${even}${even}`;
}

/** @type {(colour: number[]) => number} */
function luminance(colour) {
  const [r, g, b] = colour.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** @type {(one: number[], other: number[]) => number} */
function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

/** @type {(level: number, marks: Marks) => string} */
export const inkAt = (level, marks) => (level === 0 ? marks.digitIdle : marks.digit);

/**
 * The lowest contrast of any number with its cell: a test holds it above 4.5.
 * @type {(theme: Theme) => number}
 */
export function worstInkContrast(theme) {
  const { marks } = palette(theme);
  const stops = SCALES[theme].map(parseHex);
  /** @type {[keyof Marks, keyof Marks][]} */
  const inks = [
    ["wasteInk", "wasteBase"],
    ["wasteOn", "wasteFill"],
    ["digitIdle", "pausedBase"],
    ["digitIdle", "leaseBase"],
  ];
  return Math.min(
    ...Array.from({ length: FULL + 1 }, (_, level) =>
      contrast(parseHex(inkAt(level, marks)), scaleAt(stops, level / FULL)),
    ),
    ...inks.map(([ink, base]) => contrast(parseHex(marks[ink]), parseHex(marks[base]))),
  );
}

/**
 * Draws a state as a pattern and a mark, never as colour alone.
 * @param {Canvas} context
 * @param {string} state
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {Marks} marks
 */
export function drawState(context, state, x, y, w, h, marks) {
  STATE_DRAWINGS[state]({ context, x, y, w, h, marks, stroke: Math.max(1, Math.min(w, h) / 9) });
}

/** @type {Record<string, (cell: StrokedCell) => void>} */
const STATE_DRAWINGS = {
  retired: () => undefined,
  unscaled: (cell) => fillCell(cell, cell.marks.plain),
  denied: (cell) =>
    drawSign(
      cell,
      cell.marks.quiet,
      cell.marks.quietInk,
      Math.min(cell.w, cell.h, 44) * 0.24,
      [[-0.7, 0.7, 0.7, -0.7]],
      true,
    ),
  unsupported: (cell) =>
    drawSign(cell, cell.marks.quiet, cell.marks.quietInk, Math.min(cell.w, cell.h, 40) * 0.24, [
      [-1, 0, 1, 0],
    ]),
  stale(cell) {
    fillCell(cell, cell.marks.staleBase);
    hatch(cell, cell.marks.staleStripe);
  },
  error: (cell) =>
    drawSign(cell, cell.marks.lostBase, cell.marks.lostInk, Math.min(cell.w, cell.h, 44) * 0.26, [
      [0, -1, 0, 0.3],
      [0, 0.8, 0, 1],
    ]),
  lost: (cell) =>
    drawSign(cell, cell.marks.lostBase, cell.marks.lostInk, Math.min(cell.w, cell.h, 44) * 0.26, [
      [-1, -1, 1, 1],
      [1, -1, -1, 1],
    ]),
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
    cell.context.fillRect(
      cell.x + Math.floor((cell.w - dot) / 2),
      cell.y + Math.floor((cell.h - dot) / 2),
      dot,
      dot,
    );
    return undefined;
  },
};

/** @type {(cell: CellRoom, colour: string) => void} */
export function fillCell({ context, x, y, w, h }, colour) {
  context.fillStyle = colour;
  box(context, x, y, w, h);
}

/**
 * @param {Canvas} context
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function box(context, x, y, w, h) {
  if (h < 18) return context.fillRect(x, y, w, h);
  context.beginPath();
  context.roundRect(x, y, w, h, h > 60 ? 6 : 3);
  return context.fill();
}

/**
 * Lines around the middle, in parts of `size`; with a circle where it has one and there is room.
 * @param {StrokedCell} cell
 * @param {string} ground
 * @param {string} ink
 * @param {number} size
 * @param {number[][]} lines
 * @param {boolean} hasCircle
 */
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

/** @type {(cell: CellRoom, colour: string) => void} */
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

/** @type {(cell: StrokedCell, text: string, size: number) => void} */
function word({ context, x, y, w, h, marks }, text, size) {
  context.fillStyle = marks.quietInk;
  setType(context, 600, size, "center", "middle");
  context.fillText(text, x + w / 2, y + h / 2 + size * 0.06);
}

/**
 * @param {Canvas} context
 * @param {number} weight
 * @param {number} size
 * @param {CanvasTextAlign} align
 * @param {CanvasTextBaseline} baseline
 */
export function setType(context, weight, size, align, baseline) {
  context.font = `${weight} ${size}px ${FONT}`;
  context.textAlign = align;
  context.textBaseline = baseline;
}

export const FONT = '"Inter Variable", system-ui, sans-serif';

/**
 * Cut to the room, down to `least` letters.
 * @type {(context: Canvas, text: string, room: number, least?: number) => string}
 */
export function fit(context, text, room, least = 1) {
  if (context.measureText(text).width <= room) return text;
  let short = text;
  while (short.length > least && context.measureText(`${short}…`).width > room)
    short = short.slice(0, -1);
  return `${short}…`;
}

/**
 * A line of shares 0..1 against time; NaN is a hole, and stays one.
 * @param {Canvas} context
 * @param {ArrayLike<number> | null | undefined} past
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 * @param {string} ink
 */
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
    if (Number.isNaN(past[at])) {
      isDown = false;
      continue;
    }
    const px = x + (at / (past.length - 1)) * w;
    const py = y + (1 - Math.min(1, past[at])) * h;
    if (isDown) context.lineTo(px, py);
    else context.moveTo(px, py);
    isDown = true;
  }
  context.stroke();
  context.restore();
}
