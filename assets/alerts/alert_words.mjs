// Words about alerts where they are live: on the map, in lanes and on the desktop. For pages that the hub writes,
// dashboard/pages/alert_words.py.

export const TONES = { crit: "lost", warn: "stale", info: "" };
/** @type {Record<string, string>} */
export const SEVERITIES = { info: "info", warn: "warning", crit: "critical" };
const MOST_NAMED = 3;

/** @type {(alert: Hub.AlertView) => string} */
export function placeOf({ of, host, place, users, target }) {
  if (of === "fleet") return "the whole fleet";
  if (of === "owner") return users[0] ?? target;
  const spot = place !== "" && of !== "node" ? `GPU ${place}` : place;
  return [host, spot].filter(Boolean).join(" · ") || target;
}

/**
 * The part of a GPU's surroundings that an alert at it is about.
 * @type {(alert: Hub.AlertView) => string}
 */
function whatWords({ of, users }) {
  if (of === "gpu" || of === "fleet") return "";
  if (of === "node") return "the node";
  const whose = users.slice(0, MOST_NAMED).join(", ");
  return of === "owner" ? `all tasks of ${whose}` : `${of}${whose === "" ? "" : ` of ${whose}`}`;
}

/** @type {(alert: Hub.AlertView) => string} */
export const withWhat = (alert) =>
  [alert.title, whatWords(alert), isSilenced(alert) ? "silenced" : ""].filter(Boolean).join(" · ");

/** @type {(alert: Hub.AlertView) => string | null} */
export function addressOf({ of, target, node }) {
  if (of === "gpu") return `/gpu/${encodeURIComponent(target)}`;
  return node === "" ? null : `/node/${encodeURIComponent(node)}`;
}

/**
 * Tells whether it follows from another alert, which is shown for both.
 * @type {(alert: Pick<Hub.AlertView, "inhibited_by">) => boolean}
 */
export const isExplained = ({ inhibited_by: inhibitedBy }) => inhibitedBy.length > 0;

/**
 * Somebody knows of it: it is shown as silenced, and counted and marked nowhere.
 * @type {(alert: Pick<Hub.AlertView, "silenced_by">) => boolean}
 */
export const isSilenced = ({ silenced_by: silencedBy }) => silencedBy.length > 0;
