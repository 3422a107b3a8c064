// What stands in the tables of the Alerts page: an alert, where it is, how much, a rule, a silence.

import { make, redraw, say } from "../parts/dom.mjs";
import { age, amount, bytesWords, moment, plural } from "../parts/format.mjs";
import { stacked } from "../parts/rows.mjs";

export const TONES = { crit: "lost", warn: "stale", info: "" };
const MOST_NAMED = 3;
const OFS = { gpu: ["GPU", "GPUs"], task: ["task", "tasks"], job: ["job", "jobs"], node: ["node", "nodes"], owner: ["owner", "owners"], fleet: ["fleet", "fleets"] };

export const ofWords = (of, count) => plural(count, ...(OFS[of] ?? ["target", "targets"]));

export function drawAlert(cell, alert) {
  stacked(cell, ["span", `pill ${TONES[alert.severity]}`, alert.severity], ["strong", "name", alert.title],
    ["small", "", [alert.rule, alert.comebacks > 0 ? `fired again ${plural(alert.comebacks, "time")}` : ""].filter(Boolean).join(" · ")]);
}

export function drawTarget(cell, alert) {
  const [text, address, { users }] = [placeOf(alert), addressOf(alert), alert];
  const more = users.length > MOST_NAMED ? ` and ${users.length - MOST_NAMED} more` : "";
  redraw(cell, [text, users], () => [make("div", { class: "stacked" }, address === null ? make("span", {}, text) : make("a", { href: address }, text),
    users.length > 0 ? make("small", {}, users.slice(0, MOST_NAMED).join(", ") + more) : null)]);
}

export function drawDue(cell, { fired_at: at }) {
  const left = at - Date.now() / 1000;
  say(cell, left > 0 ? `in ${age(Math.max(1, left))}` : "at the next evaluation");
  cell.title = moment(at);
}

export function placeOf({ of, host, place, users, target }) {
  if (of === "fleet") return "the whole fleet";
  if (of === "owner") return users[0] ?? target;
  const spot = place !== "" && of !== "node" ? `GPU ${place}` : place;
  return [host, spot].filter(Boolean).join(" · ") || target;
}

/** Where it stands at a GPU: what of there it is about. */
function whatWords({ of, users }) {
  if (of === "gpu" || of === "fleet") return "";
  if (of === "node") return "the node";
  const whose = users.slice(0, MOST_NAMED).join(", ");
  return of === "owner" ? `all tasks of ${whose}` : `${OFS[of][0]}${whose === "" ? "" : ` of ${whose}`}`;
}

export const withWhat = (alert) => [alert.title, whatWords(alert), isSilenced(alert) ? "silenced" : ""].filter(Boolean).join(" · ");

export function addressOf({ of, target, node }) {
  if (of === "gpu") return `/gpu/${encodeURIComponent(target)}`;
  return node === "" ? null : `/node/${encodeURIComponent(node)}`;
}

/** With the unit of what its rule watches, as far as that is one. */
export function valueWords({ rule, value }, rules) {
  if (value === null) return "–";
  const signal = rules.find((one) => one.rule.id === rule)?.rule.signal ?? "";
  const isShare = /\//.test(signal);
  if (!isShare && /_bytes\b/.test(signal) && !/rate\(/.test(signal)) return bytesWords(value);
  if (!isShare && /\b(age|silent|sample_age|reading_age)_s\b/.test(signal)) return age(value);
  const text = Math.abs(value) >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return !isShare && /_pct/.test(signal) ? `${text} %` : /(^|\W)(temp|mem_temp)\w*_c/.test(signal) ? `${text} °C` : text;
}

export function drawRule(cell, { rule }) {
  stacked(cell, ["span", `pill ${TONES[rule.severity]}`, rule.severity], ["strong", "name", rule.title], ["small", "", rule.id]);
}

export function drawCondition(cell, { rule }) {
  const who = rule.scope === "*" ? (rule.of === "gpu" || rule.of === "fleet" ? "the whole fleet" : `all ${OFS[rule.of][1]}`) : `${rule.of === "gpu" ? "" : `${OFS[rule.of][1]}: `}${rule.scope}`;
  stacked(cell, ["code", "", `${rule.signal} ${rule.fire}`], ["small", "", [...rule.where, rule.for === "0s" ? "immediately" : `for ${rule.for}`, who].join(" · ")]);
}

export function drawNow(cell, { is_watched: isWatched, why_not: whyNot, rule, targets, pending, firing, resolving, no_data: noData, cannot }) {
  if (!isWatched || whyNot !== "") { stacked(cell, ["span", "pill stale", "not evaluated"], ["small", "", whyNot]); return; }
  const pieces = [[firing + resolving, "firing", "pill lost"], [pending, "pending", "pill stale"]].filter(([count]) => count > 0).map(([count, word, tone]) => ["span", tone, `${amount(count)} ${word}`]);
  // Green only where somebody could be told of: of whom nothing is known, all may be well or not.
  const rest = targets > 0 && noData + cannot >= targets ? ["span", "pill", "no data"] : ["span", "pill ok", "OK"];
  const quiet = [noData > 0 ? `${amount(noData)} missing data` : "", cannot > 0 ? `${amount(cannot)} not reported` : ""].filter(Boolean).join(", ");
  stacked(cell, ...(pieces.length > 0 ? pieces : [rest]), ["small", "", [`of ${ofWords(rule.of, targets)}`, quiet].filter(Boolean).join(", ")]);
}

export function drawHolds(cell, { holds, state }) {
  const lines = [state === "resolving" ? "condition no longer met" : "", ...holds].filter(Boolean);
  if (lines.length === 0) stacked(cell, ["span", "no-value", "–"]);
  else stacked(cell, ...lines.map((line) => ["small", "hold-line", line]));
}

/** It follows from another alert, which stands for both. */
export const isExplained = ({ inhibited_by: inhibitedBy }) => inhibitedBy.length > 0;

/** Somebody knows of it: it is shown as silenced, and counted and marked nowhere. */
export const isSilenced = ({ silenced_by: silencedBy }) => silencedBy.length > 0;

/** `titles` of rules and `places` of targets, as far as they are known. */
export function matchersOf({ rule, host, target, user }, { titles, places }) {
  return [rule && (titles.get(rule) ?? `rule ${rule}`), host && `node ${host}`, target && (places.get(target) ?? `target ${target}`), user && `user ${user}`].filter(Boolean).join(", ");
}
