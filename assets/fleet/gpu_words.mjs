// Words about a GPU: in its cell, aloud, in the hover card and in the drawer; and about who waits for some.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { withWhat } from "../alerts/alert_words.mjs";
import { FULL } from "../parts/gauges.mjs";
import { age, cellOf, valueOf } from "../parts/format.mjs";

/** @type {Record<string, string>} */
const STATE_WORDS = { unsupported: "not supported", unscaled: "no scale" };

// Of an alarm, and of a count, the colour alone in a fleet too large for exact numbers.
/** @type {[number, string][]} */
const COUNT_STEPS = [
  [0, "none"],
  [80, "few"],
  [160, "many"],
  [Infinity, "very many"],
];
const THROTTLE_STEPS = ["none", "power-limited", "thermal or hardware"];

/** @type {(state: string) => string} */
export const stateWords = (state) => STATE_WORDS[state] ?? state;

/** @type {(model: string) => string} */
export const shortModel = (model) => model.replace(/^NVIDIA (GeForce )?/, "");

/**
 * {text, unit, name, place, note, past, spoken}: `text` is the number or why there is none.
 * @type {(picture: FleetState, slot: number, how: { group: string, metric: Metric,
 *   reasons: ThrottleReasons, alerts: Hub.AlertView[] }) => SlotWords}
 */
export function describeSlot(picture, slot, { group, metric, reasons, alerts }) {
  const host = picture.host(slot);
  const isByNode = group === "node";
  const { text, unit } = cellText(picture, slot, metric, reasons);
  return {
    text,
    unit,
    name: isByNode ? `GPU ${picture.placeName(slot)}` : `${host}:${picture.placeName(slot)}`,
    place: isByNode ? picture.placeName(slot) : `${host}:${picture.placeName(slot)}`,
    note: noteOf(picture, slot, group),
    past: picture.past?.[slot],
    get spoken() {
      const match =
        picture.mask === null || picture.isLit(slot) ? "" : ", does not match the filter";
      return `${picture.nodeTitle(slot)}, GPU ${picture.placeName(slot)}: ${metric.label} ${text} ${unit}, ${picture.ownerName(slot)}${serviceAfter(picture, slot)}${wastedAfter(picture, slot)}${leaseAfter(picture, slot)}${match}${alerts.map((alert) => `, alert: ${withWhat(alert)}`).join("")}`;
    },
  };
}

/** @type {(picture: FleetState, slot: number, group: string) => string} */
function noteOf(picture, slot, group) {
  const parts = picture.partsOf(slot).length;
  if (picture.isThen && !picture.isKnownThen) return "";
  if (parts > 0) return `MIG: ${parts} ${parts === 1 ? "part" : "parts"}`;
  if (!picture.hasTask(slot))
    return (
      picture.serviceWords(slot) ||
      picture.lesseeWords(slot) ||
      (picture.isThen ? "no task" : "free")
    );
  // What the group is named by need not stand in each of its cells.
  return `${group === "owner" ? "" : picture.ownerName(slot)}${wastedAfter(picture, slot)}`.replace(
    /^, /,
    "",
  );
}

/** @type {(picture: FleetState, slot: number) => string} */
const serviceAfter = (picture, slot) =>
  picture.serviceWords(slot) === "" ? "" : `, ${picture.serviceWords(slot)}`;

/**
 * ", idle 2 h" of one that is wasted, ", paused".
 * @type {(picture: FleetState, slot: number) => string}
 */
function wastedAfter(picture, slot) {
  if (picture.isPaused(slot)) return ", paused";
  const wasted = picture.wasted.get(slot);
  return wasted === undefined
    ? ""
    : `, idle ${age((picture.isThen ? (picture.at ?? NaN) : Date.now() / 1000) - wasted.since)}`;
}

/** @type {(picture: FleetState, slot: number) => string} */
export const standing = (picture, slot) => wastedAfter(picture, slot).replace(", ", "") || "ok";

/** @type {(picture: FleetState, slot: number) => string} */
export const leaseAfter = (picture, slot) =>
  picture.leaseWords(slot) === "" ? "" : `, ${picture.leaseWords(slot)}`;

/**
 * @type {(picture: FleetState, slot: number, metric: Metric, reasons: ThrottleReasons) => Quantity}
 */
export function cellText(picture, slot, metric, reasons) {
  const state = picture.state(slot);
  if (!picture.hasValue(slot)) return { text: stateWords(state), unit: "" };
  const exact = picture.exact?.[slot];
  if (exact !== undefined && !Number.isNaN(exact)) return cellOf(metric, exact, reasons);
  if (metric.key === "throttle_bits")
    return { text: THROTTLE_STEPS[Math.round((2 * picture.code(slot)) / FULL)], unit: "" };
  if (metric.scale === "alarm")
    return { text: picture.code(slot) === 0 ? "well" : "look", unit: "" };
  if (metric.scale === "count")
    return { text: COUNT_STEPS.find(([most]) => picture.code(slot) <= most)?.[1] ?? "", unit: "" };
  if (state === "unscaled") return { text: "", unit: "" };
  return { text: String(Math.round((100 * picture.code(slot)) / FULL)), unit: "% of maximum" };
}

/**
 * A metric of an API answer: {text, unit} or {text: why not, isMissing: true, meaning}.
 * @type {(gpu: ShownGpu, metric: Metric, book: Pick<MetricBook, "reasons" | "absence">) =>
 *   ValueWords}
 */
export function valueWords(gpu, metric, { reasons, absence }) {
  const value = gpu.values[metric.key];
  if (value !== undefined && value !== null)
    return { ...valueOf(metric, value, reasons), isMissing: false };
  const why = gpu.missing[metric.key] ?? "unknown";
  return { text: stateWords(why), unit: "", isMissing: true, meaning: absence[why] ?? "" };
}

/**
 * The share of full, for a bar; null where full is not known.
 * @type {(gpu: ShownGpu, metric: Metric) => number | null}
 */
export function shareOf(gpu, metric) {
  const value = gpu.values[metric.key];
  if (metric.scale !== "share" || metric.words || metric.key === "throttle_bits") return null;
  const facts = /** @type {Record<string, any> | undefined} */ (gpu.facts);
  const full = metric.full ?? facts?.[metric.fullFact ?? ""];
  if (value === undefined || value === null || full === undefined || full === null) return null;
  return Math.min(1, Math.max(0, value / full));
}

/**
 * `why` begins with what is asked for.
 * @type {(claim: Pick<Hub.ClaimView, "asks" | "why" | "estimate" | "wait_s" | "asked_at">, now: number) => string}
 */
export function claimWords({ asks, why, estimate, wait_s: wait, asked_at: at }, now) {
  const starts = estimate || (wait === null ? "" : `starts within ${age(wait)}`);
  const because = why.replace(`it asks for ${asks}; `, "");
  return [asks, `waiting ${age(now - at)}`, starts, because].filter(Boolean).join(" · ");
}
