// The pool as the hub described it last, in the words of the page. Pure.

import { plural } from "../parts/format.mjs";

const collator = new Intl.Collator("en", { numeric: true });
export const byHost = (one, other) => collator.compare(one.host, other.host);

/** Of nodes as the API lists them: {host, place, model} by GPU. */
export function gpusOf(nodes) {
  return new Map(nodes.flatMap(({ host, gpus }) => gpus.map((gpu) => [gpu.uuid, { ...gpu, host }])));
}

/** "0–3, 6" */
export function placesWords(places) {
  const runs = [];
  for (const place of [...places].sort(collator.compare)) {
    const last = runs.at(-1);
    if (last !== undefined && Number(place) === Number(last.to) + 1) last.to = place;
    else runs.push({ from: place, to: place });
  }
  return runs.map(({ from, to }) => (from === to ? from : `${from}${Number(to) - Number(from) === 1 ? ", " : "–"}${to}`)).join(", ");
}

/** "GPU 0–3"; of a part "30 % of GPU 2". */
export function leasedWords(lease, gpus) {
  const known = lease.gpus.map((uuid) => gpus.get(uuid)?.place).filter((place) => place !== undefined);
  const words = known.length < lease.gpus.length ? plural(lease.gpus.length, "GPU") : `GPU ${placesWords(known)}`;
  return lease.share_pct < 100 ? `${Math.round(lease.share_pct)} % of ${words}` : words;
}

export const isReserved = ({ starts_at: at }, now) => at !== null && at > now;

/** All that an owner, a node, a model or a command may be found by. */
export const textOf = (lease, gpus) => [lease.owner, lease.host, lease.command, gpus.get(lease.gpus[0])?.model ?? ""].join("\n").toLowerCase();

/** Midnights of seven days, and the one after them. */
export function weekOf(offset, now) {
  const today = new Date(now * 1000);
  return Array.from({ length: 8 }, (_, day) => new Date(today.getFullYear(), today.getMonth(), today.getDate() + 7 * offset + day).getTime() / 1000);
}

/** What is drawn in the row of a node: {item, kind, from, to, lanes, share, at}; a lane is a GPU. Where it is not decided yet
 * which GPUs a reservation gets, it stands on some that are free then. */
export function spansOf({ host, gpus }, leases, claims, now) {
  const laneOf = new Map(gpus.map(({ uuid }, lane) => [uuid, lane]));
  const lanesOf = (uuids) => uuids.map((uuid) => laneOf.get(uuid)).filter((lane) => lane !== undefined);
  const used = new Map(); // of a lane, how much of it is drawn already
  const spans = leases.map((item) => {
    const lanes = lanesOf(item.gpus);
    const share = item.share_pct / 100;
    const at = Math.max(0, ...lanes.map((lane) => used.get(lane) ?? 0));
    for (const lane of lanes) used.set(lane, at + share);
    return { item, kind: "lease", from: item.since, to: Math.max(item.until, now), lanes, share, at: at + share > 1.001 ? 0 : at };
  });
  for (const item of claims) {
    const [from, to] = [item.starts_at, item.starts_at + item.term_s];
    const kept = lanesOf(item.kept ?? []);
    const isFree = (lane) => spans.every((one) => !one.lanes.includes(lane) || one.to <= from || one.from >= to);
    const free = [...laneOf.values()].filter(isFree);
    const lanes = kept.length > 0 ? kept : [...free, ...[...laneOf.values()].filter((lane) => !free.includes(lane))].slice(0, item.gpus);
    spans.push({ item, kind: "claim", from, to, lanes, share: 1, at: 0, host });
  }
  return spans;
}

/** Neighbours together: [[first, count]]. */
export function runsOf(lanes) {
  const runs = [];
  for (const lane of [...lanes].sort((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last !== undefined && lane === last[0] + last[1]) last[1] += 1;
    else runs.push([lane, 1]);
  }
  return runs;
}

/** One below the other, where they would lie on each other. */
export function stackedLanes(items) {
  const ends = [];
  return items.map((item) => {
    const free = ends.findIndex((end) => end <= item.starts_at);
    const lane = free === -1 ? ends.length : free;
    ends[lane] = item.starts_at + item.term_s;
    return { item, kind: "claim", from: item.starts_at, to: ends[lane], lanes: [lane], share: 1, at: 0 };
  });
}

