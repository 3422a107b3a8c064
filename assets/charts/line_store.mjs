// The Samples of some GPUs over time, as the timelines draw them. A hole stays a hole: where nothing
// was read for longer than two ticks, a point without a value parts the line.

import { bytesOf, numbersOf } from "../live/wire_numbers.mjs";

const GAP_S = 2.5;
const KEEP_S = 3_700;
// Cut in lumps: shifting sixteen arrays each second would be most of the work.
const LUMP = 300;

/** @type {(track: Track, key: string) => (number | null)[]} */
const columnOf = ({ values }, key) => values.get(key) ?? [];

export class LineStore {
  /** @param {string[]} keys */
  constructor(keys) {
    this.keys = keys;
    /** @type {Map<string, Track>} */
    this.tracks = new Map();
  }

  /** @type {(uuids: string[]) => void} */
  watch(uuids) {
    for (const uuid of this.tracks.keys()) if (!uuids.includes(uuid)) this.tracks.delete(uuid);
    for (const uuid of uuids) if (!this.tracks.has(uuid)) this.tracks.set(uuid, this.empty());
  }

  /** @type {() => Track} */
  empty() {
    return { t: [], values: new Map(this.keys.map((key) => [key, []])), why: new Map() };
  }

  /** @type {(uuid: string) => Track} */
  track(uuid) {
    return this.tracks.get(uuid) ?? this.empty();
  }

  /** @type {(uuid: string) => number | null} */
  newest(uuid) {
    return this.track(uuid).t.at(-1) ?? null;
  }

  /**
   * Takes a `lines` message; returns the missing seconds between the samples here and those in it.
   * @type {(message: Hub.Lines, words: string[]) => Hole[]}
   */
  take({ gpus }, words) {
    /** @type {Hole[]} */
    const holes = [];
    for (const gpu of gpus) {
      const track = this.tracks.get(gpu.uuid);
      if (track === undefined) continue;
      const at = numbersOf(gpu.at, Float64Array);
      const values = numbersOf(gpu.values, Float64Array);
      at.forEach((time, row) => {
        const last = track.t.at(-1) ?? null;
        if (last !== null && time <= last) return;
        if (last !== null && time - last > GAP_S) {
          this.part(track, last, time);
          holes.push({ uuid: gpu.uuid, from: last, to: time });
        }
        this.append(track, time, values, bytesOf(gpu.absent), row * this.keys.length, words);
      });
      this.trim(track);
    }
    return holes;
  }

  /**
   * @type {(track: Track, time: number, values: Float64Array, absent: Uint8Array, from: number,
   *   words: string[]) => void}
   */
  append(track, time, values, absent, from, words) {
    track.t.push(time);
    this.keys.forEach((key, at) => {
      const why = absent[from + at];
      columnOf(track, key).push(why === 0 ? values[from + at] : null);
      track.why.set(key, why === 0 ? null : (words[why] ?? "unknown"));
    });
  }

  /** @type {(track: Track, last: number, next: number) => void} */
  part(track, last, next) {
    track.t.push(Math.min(last + 1, (last + next) / 2));
    for (const key of this.keys) columnOf(track, key).push(null);
  }

  /** @type {(track: Track) => void} */
  trim(track) {
    const oldest = (track.t.at(-1) ?? NaN) - KEEP_S;
    const count = track.t.findIndex((time) => time >= oldest);
    if (count < LUMP) return;
    track.t.splice(0, count);
    for (const key of this.keys) columnOf(track, key).splice(0, count);
  }

  /**
   * Fills in history of a span: `columns` maps a key to values beside `t`, null for holes.
   * @type {(uuid: string, t: number[], columns: Record<string, (number | null)[]>) => void}
   */
  fill(uuid, t, columns) {
    const track = this.tracks.get(uuid);
    if (track === undefined || t.length === 0) return;
    const present = new Set(track.t.map(Math.floor));
    // Seconds without a value at the end stay: where a GPU is lost, time goes on.
    const lastRead = track.t.findLastIndex((_, at) => this.hasAny(track, at));
    const rows = [...track.t.keys()]
      .filter((at) => at > lastRead || this.hasAny(track, at))
      .map((at) => ({
        time: track.t[at],
        get: (/** @type {string} */ key) => columnOf(track, key)[at],
      }));
    t.forEach((time, at) => {
      if (
        !present.has(Math.floor(time)) &&
        Object.values(columns).some((column) => column[at] !== null)
      )
        rows.push({ time, get: (key) => columns[key]?.[at] ?? null });
    });
    rows.sort((one, other) => one.time - other.time);
    const merged = this.empty();
    rows.forEach((row, at) => {
      if (at > 0 && row.time - rows[at - 1].time > GAP_S)
        this.part(merged, rows[at - 1].time, row.time);
      merged.t.push(row.time);
      for (const key of this.keys) columnOf(merged, key).push(row.get(key));
    });
    Object.assign(track, { t: merged.t, values: merged.values });
  }

  /** @type {(track: Track, at: number) => boolean} */
  hasAny(track, at) {
    return this.keys.some((key) => columnOf(track, key)[at] !== null);
  }
}

/**
 * Returns one metric of a track within a span, with a point on either side of it.
 * @type {(track: Track, key: string, span: TimeRange) => TrackWindow}
 */
export function windowOf(track, key, { from, to }) {
  const first = Math.max(0, lowerBound(track.t, from) - 1);
  const last = lowerBound(track.t, to) + 1;
  return { t: track.t.slice(first, last), values: track.values.get(key)?.slice(first, last) ?? [] };
}

/** @type {(sorted: number[], wanted: number) => number} */
function lowerBound(sorted, wanted) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
