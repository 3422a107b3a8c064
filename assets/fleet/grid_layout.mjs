// Layout of the map. Pure: a picture, a view and the available room in; rows of cells out.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { rankOnNode } from "../live/slot_ranks.mjs";
import { grouped } from "../parts/grouped.mjs";
import { awayWords } from "./sites.mjs";

const HEIGHTS = [
  240, 214, 190, 170, 150, 132, 116, 100, 88, 78, 70, 64, 58, 53, 48, 43, 38, 34, 30, 28, 26, 25,
  24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6,
];
const LABEL_FROM = 13;
// On a very large screen 10,000 cells have room for text, and writing it takes a fifth of a second.
const MOST_TEXTS = 2_048;
// More sections than this stand as blocks side by side: as lines of their own they would leave the window.
const MOST_LINES = 6;
const HEADING = 24;
// Behind a node's name, for the mark of its alert: when one fires, nothing moves.
export const MARK_ROOM = 12;
const collator = new Intl.Collator("en", { numeric: true });

/**
 * {width, height, cellW, cellH, hasText, rows: [{y, slots, x}], words: [{text, x, y, room,
 * isHeading}], listed}. `listed`: all slots as a list has them, group by group; groups lie side by
 * side, so rows mix them.
 * @type {(picture: FleetState, view: FleetView, room: Room, measure: Measure) => MapPlan}
 */
export function arrange(picture, view, room, measure) {
  const nodes = view.group === "node" ? nodesOf(picture, view.sort) : null;
  const groups = nodes ?? sectionsOf(picture, view);
  const fitted =
    nodes !== null ? fitNodes(nodes, room, measure) : fitSections(groups, room, measure);
  return {
    ...fitted,
    hasText: fitted.cellW >= 20 && fitted.cellH >= 14 && picture.count <= MOST_TEXTS,
    group: view.group,
    listed: groups.flatMap(({ slots }) => slots),
  };
}

// A cell without a number has no rank: it follows all that have one, whichever way is asked.
/** @type {(picture: FleetState, slot: number, sort: string) => number} */
function rank(picture, slot, sort) {
  const code = picture.code(slot);
  if (code >= 249) return -1;
  return sort === "low" ? 240 - code : code;
}

/** @type {(picture: FleetState, sort: string) => NodeBlock[]} */
function nodesOf(picture, sort) {
  const byNode = grouped(picture.present(), (slot) => picture.node[slot]);
  const nodes = [...byNode.values()].map((slots) => nodeBlock(picture, slots, sort));
  const names = picture.ranks();
  nodes.sort((a, b) => b.rank - a.rank || names[a.slots[0]] - names[b.slots[0]]);
  return nodes;
}

/** @type {(picture: FleetState, slots: number[], sort: string) => NodeBlock} */
function nodeBlock(picture, slots, sort) {
  slots.sort((a, b) => rankOnNode(picture, a) - rankOnNode(picture, b));
  const best = sort === "name" ? 0 : Math.max(...slots.map((slot) => rank(picture, slot, sort)));
  return { title: picture.nodeTitle(slots[0]), slots, rank: best };
}

/** @type {Record<string, (picture: FleetState, slot: number) => string>} */
const GROUP_KEYS = {
  none: () => "",
  model: (picture, slot) => picture.modelName(slot),
  owner: (picture, slot) => picture.ownerName(slot),
  site: siteTitle,
  state: (picture, slot) =>
    picture.hasValue(slot) ? "ok" : picture.state(slot).replace("unsupported", "not supported"),
};
/** @type {(picture: FleetState, slot: number) => string} */
function siteTitle(picture, slot) {
  const name = picture.siteName(slot) ?? "this hub";
  const away = awayWords(picture.sites.get(name));
  return away === "" ? name : `${name}, ${away}`;
}

const STATE_ORDER = [
  "lost",
  "error",
  "offline",
  "stale",
  "unknown",
  "denied",
  "not supported",
  "ok",
];

/** @type {(picture: FleetState, view: FleetView) => Section[]} */
function sectionsOf(picture, { group, sort }) {
  const byKey = grouped(picture.present(), (slot) => GROUP_KEYS[group](picture, slot));
  const names = picture.ranks();
  /** @type {(a: number, b: number) => number} */
  const byName = (a, b) => names[a] - names[b];
  /** @type {(a: number, b: number) => number} */
  const order =
    sort === "name"
      ? byName
      : (a, b) => rank(picture, b, sort) - rank(picture, a, sort) || byName(a, b);
  const sections = [...byKey].map(([title, slots]) => ({ title, slots: slots.sort(order) }));
  /** @type {(section: Section) => number} */
  const place = group === "state" ? (section) => STATE_ORDER.indexOf(section.title) : () => 0;
  return sections.sort(
    (a, b) =>
      place(a) - place(b) || b.slots.length - a.slots.length || collator.compare(a.title, b.title),
  );
}

/** @type {(h: number) => Gaps} */
function gaps(h) {
  if (h >= 72) return { cell: 6, block: 18, row: 14 };
  if (h >= 60) return { cell: 6, block: 18, row: 6 };
  if (h >= 30) return { cell: 4, block: 16, row: 8 };
  if (h >= 16) return { cell: 2, block: 14, row: 4 };
  return { cell: 1, block: h >= 11 ? 10 : 5, row: h >= 9 ? 3 : 2 };
}

/** @type {(h: number) => [number, number]} */
function widths(h) {
  if (h >= 116) return [h * 0.95, h * 2.3]; // on a wide screen there is height to fill
  if (h >= 72) return [h * 1.25, h * 2.3];
  if (h >= 30) return [h * 1.5, h * 3];
  if (h >= 14) return [Math.max(22, h), h * 2.2];
  return [h, h * 1.6];
}

// A node's GPUs lie in one row, so that the same index stands in one column all the way down;
// only where there are next to no nodes, or next to no width, is the row broken.
/** @type {(nodes: NodeBlock[], room: Room, measure: Measure) => FittedPlan} */
function fitNodes(nodes, room, measure) {
  const longest = Math.max(0, ...nodes.map((node) => measure(node.title)));
  const most = Math.max(1, ...nodes.map((node) => node.slots.length));
  const [whole, ...broken] = acrossOptions(most).map((across) =>
    tallest(nodes, room, longest, across),
  );
  /** @type {(shape: NodeShape | null, best: NodeShape | null) => boolean} */
  const isBetter = (shape, best) =>
    shape !== null && (best === null || shape.h > best.h * (nodes.length > 2 ? 1.8 : 1));
  const best = broken.reduce((kept, shape) => (isBetter(shape, kept) ? shape : kept), whole);
  if (best === null)
    return { width: room.width, height: 0, cellW: 0, cellH: 0, rows: [], words: [] };
  return placeNodes(nodes, narrowed(nodes, room, longest, best), room);
}

/**
 * @type {(nodes: NodeBlock[], room: Room, longest: number, across: number) => NodeShape | null}
 */
function tallest(nodes, room, longest, across) {
  const smallest = room.isTouch ? 9 : 6;
  for (const h of HEIGHTS.filter((height) => height >= smallest)) {
    const shape = nodeShape(nodes, room, longest, h, across);
    if (shape !== null && (shape.height <= room.height || h === smallest)) return shape;
  }
  return null;
}

/** @type {(most: number) => number[]} */
function acrossOptions(most) {
  const whole = Math.min(most, 8);
  return [...new Set([whole, Math.ceil(whole / 2), Math.ceil(whole / 4)])];
}

// How many blocks lie side by side at this height, and how tall that becomes. Null: none fits.
/**
 * @type {(nodes: NodeBlock[], room: Room, longest: number, h: number, across: number,
 *   blocksWanted?: number) => NodeShape | null}
 */
function nodeShape(nodes, room, longest, h, across, blocksWanted = Infinity) {
  const gap = gaps(h);
  const label = labelPlace(h, room, longest);
  const left = label === "left" ? Math.min(longest, 132) + MARK_ROOM + 10 : 0;
  const blockMin = left + across * (widths(h)[0] + gap.cell) - gap.cell;
  const blocks = Math.min(
    blocksWanted,
    nodes.length,
    Math.floor((room.width + gap.block) / (blockMin + gap.block)),
  );
  if (blocks < 1) return null;
  const top = label === "top" ? (h >= 72 ? HEADING : 17) : 0;
  return {
    h,
    across,
    gap,
    label,
    left,
    top,
    blocks,
    height: stackHeight(nodes, { h, across, gap, top, blocks }),
  };
}

/** @type {(h: number, room: Room, longest: number) => NodeShape["label"]} */
function labelPlace(h, room, longest) {
  if (h < LABEL_FROM) return "none";
  return h >= 72 || room.width < 560 || longest > room.width / 4 ? "top" : "left";
}

// Called for each size that is tried: no arrays made here.
/** @type {(nodes: NodeBlock[], shape: StackShape) => number} */
function stackHeight(nodes, { h, across, gap, top, blocks }) {
  let total = -gap.row;
  for (let at = 0; at < nodes.length; at += blocks) {
    total += lineHeight(nodes, at, { h, across, gap, top, blocks }) + gap.row;
  }
  return total;
}

/** @type {(nodes: NodeBlock[], from: number, shape: StackShape) => number} */
function lineHeight(nodes, from, { h, across, gap, top, blocks }) {
  return top + depth(nodes, from, blocks, across) * (h + gap.cell) - gap.cell;
}

/** @type {(nodes: NodeBlock[], from: number, blocks: number, across: number) => number} */
function depth(nodes, from, blocks, across) {
  let most = 1;
  for (let at = from; at < Math.min(from + blocks, nodes.length); at++)
    most = Math.max(most, nodes[at].slots.length);
  return Math.ceil(most / across);
}

// Fewer blocks side by side while it still fits: wider cells, and names that line up.
/** @type {(nodes: NodeBlock[], room: Room, longest: number, shape: NodeShape) => NodeShape} */
function narrowed(nodes, room, longest, shape) {
  let best = shape;
  for (let blocks = shape.blocks - 1; blocks >= 1; blocks--) {
    const next = nodeShape(nodes, room, longest, shape.h, shape.across, blocks);
    if (next === null || next.height > room.height) break;
    best = next;
  }
  return best;
}

/** @type {(room: Room, shape: NodeShape) => number} */
function cellWidth(room, { h, across, gap, left, blocks }) {
  const share = (room.width + gap.block) / blocks - gap.block - left;
  const widest = (share + gap.cell) / across - gap.cell;
  return Math.floor(Math.min(widths(h)[1], Math.max(widths(h)[0], widest)));
}

/** @type {(nodes: NodeBlock[], shape: NodeShape, room: Room) => FittedPlan} */
function placeNodes(nodes, shape, room) {
  const { h, across, left, blocks } = shape;
  const cellW = cellWidth(room, shape);
  const blockW = left + across * (cellW + shape.gap.cell) - shape.gap.cell;
  const gap = {
    ...shape.gap,
    block: spread(room.width - blocks * blockW, blocks, shape.gap.block),
  };
  const rows = [];
  const words = [];
  let y = 0;
  for (let at = 0; at < nodes.length; at += blocks) {
    const line = nodes.slice(at, at + blocks);
    rows.push(...lineRows(line, { ...shape, gap, cellW, blockW }, y));
    if (shape.label !== "none") {
      words.push(
        ...line.map((node, k) => nodeWord(node, k * (blockW + gap.block), y, { ...shape, blockW })),
      );
    }
    y += lineHeight(nodes, at, shape) + gap.row;
  }
  return { width: room.width, height: Math.max(0, y - gap.row), cellW, cellH: h, rows, words };
}

// What rounding cells down has left over goes between the blocks.
/** @type {(rest: number, blocks: number, least: number) => number} */
function spread(rest, blocks, least) {
  return blocks < 2 ? least : Math.max(least, Math.min(3 * least, Math.floor(rest / (blocks - 1))));
}

/** @type {(line: NodeBlock[], shape: LineShape, y: number) => CellRow[]} */
function lineRows(line, { h, across, gap, left, top, cellW, blockW }, y) {
  return Array.from({ length: depth(line, 0, line.length, across) }, (_, deep) => {
    /** @type {number[]} */
    const slots = [];
    /** @type {number[]} */
    const x = [];
    line.forEach((node, block) => {
      node.slots.slice(deep * across, (deep + 1) * across).forEach((slot, k) => {
        slots.push(slot);
        x.push(block * (blockW + gap.block) + left + k * (cellW + gap.cell));
      });
    });
    return { y: y + top + deep * (h + gap.cell), slots: Int32Array.from(slots), x };
  });
}

/**
 * @type {(node: NodeBlock, x: number, y: number, shape: NodeShape & { blockW: number }) => MapWord}
 */
function nodeWord(node, x, y, { h, label, left, top, blockW }) {
  if (label === "left")
    return { text: node.title, x, y: y + h / 2, room: left - 10, isHeading: false, node };
  return { text: node.title, x, y: y + top / 2 - 2, room: blockW, isHeading: h >= 72, node };
}

/** @type {(sections: Section[], room: Room, measure: Measure) => FittedPlan} */
function fitSections(sections, room, measure) {
  const smallest = room.isTouch ? 9 : 6;
  for (const h of HEIGHTS.filter((height) => height >= smallest && height <= 150)) {
    const packed = packSections(sections, room, h, measure);
    if (packed !== null && (packed.height <= room.height || h === smallest)) {
      return { ...drawnSections(packed), width: room.width, height: packed.height, cellH: h };
    }
  }
  return { width: room.width, height: 0, cellW: 0, cellH: 0, rows: [], words: [] };
}

// Sections stand side by side while there is room, like words in a line. Null: no cell fits.
/**
 * @type {(sections: Section[], room: Room, h: number, measure: Measure) => PackedSections | null}
 */
function packSections(sections, room, h, measure) {
  const gap = gaps(h);
  const most = Math.max(1, ...sections.map((section) => section.slots.length));
  const across = Math.min(most, Math.floor((room.width + gap.cell) / (widths(h)[0] + gap.cell)));
  if (across < 1) return null;
  const cellW = Math.floor(Math.min(widths(h)[1], (room.width + gap.cell) / across - gap.cell));
  const pen = { x: 0, y: 0, deepest: 0 };
  const spots = sections.map((section) =>
    spotFor(section, pen, {
      room,
      h,
      gap,
      cellW,
      measure,
      across: sections.length > MOST_LINES ? blockOf(section, across) : across,
    }),
  );
  return { spots, h, gap, across, cellW, height: pen.y + pen.deepest };
}

/** @type {(section: Section, across: number) => number} */
const blockOf = ({ slots }, across) =>
  Math.min(across, Math.max(8, Math.ceil(Math.sqrt(slots.length * 4))));

/**
 * @type {(section: Section, pen: Pen, shape: { room: Room, h: number, gap: Gaps, across: number,
 *   cellW: number, measure: Measure }) => SectionSpot}
 */
function spotFor(section, pen, { room, h, gap, across, cellW, measure }) {
  const { length } = section.slots;
  const top = section.title === "" ? 0 : HEADING;
  const heading = section.title === "" ? 0 : measure(headingOf(section)) * 1.3;
  const width = Math.max(
    Math.min(across, length) * (cellW + gap.cell) - gap.cell,
    Math.min(heading, room.width),
  );
  if (pen.x > 0 && pen.x + width > room.width) {
    Object.assign(pen, { x: 0, y: pen.y + pen.deepest + gap.row, deepest: 0 });
  }
  const spot = { section, x: pen.x, y: pen.y, top, width, across };
  pen.deepest = Math.max(pen.deepest, top + Math.ceil(length / across) * (h + gap.cell) - gap.cell);
  pen.x += width + Math.max(18, gap.block);
  return spot;
}

/** @type {(section: Section) => string} */
const headingOf = ({ title, slots }) => `${title} · ${slots.length}`;

// Rows of cells on one line of sections are one row, so that an arrow key crosses from one to the next.
/** @type {(packed: PackedSections) => Pick<FittedPlan, "rows" | "words" | "cellW">} */
function drawnSections({ spots, h, gap, cellW }) {
  /** @type {Map<number, { y: number, slots: number[], x: number[] }>} */
  const byY = new Map();
  const words = [];
  for (const { section, x, y, top, width, across } of spots) {
    if (top > 0)
      words.push({
        text: headingOf(section),
        x,
        y: y + top / 2 - 2,
        room: width + 12,
        isHeading: true,
      });
    section.slots.forEach((slot, at) => {
      const rowY = y + top + Math.floor(at / across) * (h + gap.cell);
      const row = byY.get(rowY) ?? { y: rowY, slots: [], x: [] };
      byY.set(rowY, row);
      row.slots.push(slot);
      row.x.push(x + (at % across) * (cellW + gap.cell));
    });
  }
  const rows = [...byY.values()].sort((a, b) => a.y - b.y);
  return { rows: rows.map((row) => ({ ...row, slots: Int32Array.from(row.slots) })), words, cellW };
}

/**
 * Returns the place of each slot: {row, at} by slot, for the keyboard and the marks.
 * @type {(plan: MapPlan) => Map<number, MapPlace>}
 */
export function placesOf(plan) {
  const places = new Map();
  plan.rows.forEach((row, at) =>
    row.slots.forEach((slot, k) => places.set(slot, { row: at, at: k })),
  );
  return places;
}

/**
 * The slot under a point, or null; a gap belongs to the nearest cell within 3 px.
 * @type {(plan: MapPlan, x: number, y: number) => number | null}
 */
export function slotAt(plan, x, y) {
  const row = plan.rows.find(({ y: top }) => y >= top - 3 && y < top + plan.cellH + 3);
  if (row === undefined) return null;
  const at = row.x.findIndex((left) => x >= left - 3 && x < left + plan.cellW + 3);
  return at < 0 ? null : row.slots[at];
}

/**
 * The slot that an arrow key leads to; at an edge it stays.
 * @type {(plan: MapPlan, places: Map<number, MapPlace>, slot: number | null, key: string) =>
 *   number | null}
 */
export function neighbour(plan, places, slot, key) {
  const place = slot === null ? undefined : places.get(slot);
  if (slot === null || place === undefined) return plan.rows[0]?.slots[0] ?? null;
  if (key === "Home") return plan.rows[0].slots[0];
  if (key === "End") return plan.rows.at(-1)?.slots.at(-1) ?? null;
  if (key === "ArrowLeft") return sideways(plan, place, -1) ?? slot;
  if (key === "ArrowRight") return sideways(plan, place, 1) ?? slot;
  return upDown(plan, place, key === "ArrowUp" ? -1 : 1) ?? slot;
}

/** @type {(plan: MapPlan, place: MapPlace, step: number) => number | undefined} */
function sideways(plan, { row, at }, step) {
  const inRow = plan.rows[row].slots[at + step];
  if (inRow !== undefined) return inRow;
  return step < 0 ? plan.rows[row - 1]?.slots.at(-1) : plan.rows[row + 1]?.slots[0];
}

/** @type {(plan: MapPlan, place: MapPlace, step: number) => number | undefined} */
function upDown(plan, { row, at }, step) {
  const next = plan.rows[row + step];
  if (next === undefined) return undefined;
  const x = plan.rows[row].x[at];
  let best = 0;
  next.x.forEach((left, k) => {
    if (Math.abs(left - x) < Math.abs(next.x[best] - x)) best = k;
  });
  return next.slots[best];
}
