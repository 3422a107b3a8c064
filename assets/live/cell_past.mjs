// The last minute of each cell, for the sparklines of large ones.

import { FULL } from "../parts/gauges.mjs";

const LENGTH = 60;
// Sparklines are drawn only in large cells; keeping a minute of 10,000 GPUs would be for nothing.
const MOST_GPUS = 128;

/**
 * Returns the lines with the cells' values at their ends; null for a fleet that has none.
 * @type {(past: Float32Array[] | null, cells: Uint8Array) => Float32Array[] | null}
 */
export function appendCells(past, cells) {
  if (cells.length > MOST_GPUS) return null;
  const lines =
    past?.length === cells.length
      ? past
      : Array.from(cells, () => new Float32Array(LENGTH).fill(NaN));
  for (const [slot, line] of lines.entries()) {
    line.copyWithin(0, 1);
    line[LENGTH - 1] = cells[slot] <= FULL ? cells[slot] / FULL : NaN;
  }
  return lines;
}
