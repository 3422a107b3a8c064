// Moments of the fleet's past, as the hub's blocks bring them: some dozen at a time, kept for who
// goes back and forth.

import { look } from "../parts/api.mjs";

const MOST_BYTES = 24 * 2 ** 20;
const KEEP_MS = 120_000; // late samples may still come
const YOUNG_KEEP_MS = 3_000;
const YOUNG_S = 30;
const MOST_SELDOM = 12;
// Of each step, as many as the hub reads for one question; of a large fleet fewer, so that neither
// the hub nor the page is held up by taking one block apart.
const COUNTS = new Map([
  [5, 60],
  [30, 60],
  [120, 30],
  [900, 12],
]);
const FEWER = new Map([
  [5, 20],
  [30, 20],
  [120, 10],
  [900, 4],
]);
const LARGE = 2_048;

export class Blocks {
  /** @type {Map<string, PastBlock>} */
  blocks = new Map();
  /** @type {Map<string, Promise<PastBlock>>} */
  coming = new Map();

  /**
   * Returns the moment if it is here already; undefined: it has to be fetched.
   * @type {(wish: BlockWish) => BlockMoment | undefined}
   */
  ready(wish) {
    const block = this.blocks.get(pathOf(wish));
    return block === undefined || block.until < performance.now()
      ? undefined
      : momentOf(block, wish.at);
  }

  /** @type {(wish: BlockWish) => Promise<BlockMoment>} */
  async fetch(wish) {
    return this.ready(wish) ?? momentOf(await this.load(pathOf(wish)), wish.at);
  }

  /** @type {(path: string) => Promise<PastBlock>} */
  load(path) {
    const before = this.coming.get(path);
    if (before !== undefined) return before;
    const request = /** @type {Promise<any>} */ (look(path));
    const block = request
      .then((answer) => this.keep(path, blockOf(answer)))
      .finally(() => this.coming.delete(path));
    this.coming.set(path, block);
    return block;
  }

  /**
   * The block after this moment, for who plays.
   * @type {(wish: BlockWish) => void}
   */
  prefetch(wish) {
    const { step, count } = gridOf(wish);
    const next = { ...wish, at: wish.at + step * count };
    if (next.at < Date.now() / 1000 && this.ready(next) === undefined)
      this.load(pathOf(next)).catch(() => {}); // who arrives there asks again
  }

  /** @type {(path: string, block: PastBlock) => PastBlock} */
  keep(path, block) {
    this.blocks.delete(path);
    this.blocks.set(path, block);
    let bytes = 0;
    for (const { size } of this.blocks.values()) bytes += size;
    for (const [key, { size }] of this.blocks) {
      if (bytes <= MOST_BYTES || key === path) break;
      this.blocks.delete(key);
      bytes -= size;
    }
    return block;
  }

  forget() {
    this.blocks.clear();
  }
}

/**
 * Returns the block of a moment. One from an address may lie between two steps, and comes alone.
 * @type {(wish: BlockWish) => { start: number, step: number, count: number }}
 */
function gridOf({ at, step, isSeldom, size }) {
  if (at % step !== 0) return { start: at, step, count: 1 };
  const count = isSeldom ? MOST_SELDOM : ((size > LARGE ? FEWER : COUNTS).get(step) ?? 1);
  return { start: at - (at % (step * count)), step, count };
}

/** @type {(wish: BlockWish) => string} */
function pathOf(wish) {
  const { start, step, count } = gridOf(wish);
  return `block?${new URLSearchParams(Object.entries({ metric: wish.metric, start, step, count }).map(([name, value]) => [name, String(value)]))}`;
}

/** @type {(answer: Hub.PastBlockView) => PastBlock} */
function blockOf(answer) {
  const cells = bytesOfText(answer.cells);
  const exact = answer.exact === null ? null : new Float32Array(bytesOfText(answer.exact).buffer);
  const isYoung = answer.start + answer.count * answer.step > Date.now() / 1000 - YOUNG_S;
  return {
    ...answer,
    cells,
    exact,
    size: cells.length + (exact?.byteLength ?? 0),
    until: performance.now() + (isYoung ? YOUNG_KEEP_MS : KEEP_MS),
  };
}

/** @type {(block: PastBlock, at: number) => BlockMoment} */
function momentOf(block, at) {
  const place = (at - block.start) / block.step;
  const [from, to] = [place * block.n, (place + 1) * block.n];
  return {
    at,
    metric: block.metric,
    epoch: block.epoch,
    count: block.n,
    grainS: block.grain_s,
    seen: block.seen[place],
    gone: block.gone[place],
    cells: block.cells.subarray(from, to),
    exact: block.exact?.subarray(from, to) ?? null,
  };
}

/** @type {(text: string) => Uint8Array<ArrayBuffer>} */
export function bytesOfText(text) {
  const { fromBase64 } = /** @type {{ fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }} */ (
    Uint8Array
  );
  if (fromBase64 !== undefined) return fromBase64.call(Uint8Array, text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  return bytes;
}
