// Alerts of one rule as one line that opens: what fails is one thing, however many it hits. Pure, but
// for the cells it draws.

import { ofWords } from "./alert_words.mjs";
import { make, redraw } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";

const MOST_HOSTS = 3;
const ON_NODES = new Set(["gpu", "task", "job"]);

/** In their order, each rule where its first alert stands. What waits for a person stands alone. */
export function linesOf(alerts, opened) {
  const keyOf = (alert) => (alert.ladder?.confirm ? alert.id : alert.rule);
  return [...grouped(alerts, keyOf)].flatMap(([rule, members]) => {
    if (members.length === 1) return members;
    const isOpen = opened.has(rule);
    return [groupOf(rule, members, isOpen), ...(isOpen ? members.map((one) => ({ ...one, isMember: true })) : [])];
  });
}

/** As an alert has it: since when, held by what; the earliest and all of it. */
function groupOf(rule, members, isOpen) {
  const least = (key) => Math.min(...members.map((one) => one[key] ?? Infinity));
  const holds = [...new Set(members.flatMap((one) => one.holds))];
  return { ...members[0], id: `rule ${rule}`, members, isOpen, value: null, ladder: null, comebacks: 0, holds, why: "", state: "firing", since: least("since"), fired_at: least("fired_at") };
}

/** "Near thermal limit: 6 GPUs on 4 nodes" */
export function groupWords({ title, of, members }) {
  const hosts = new Set(members.map(({ host }) => host));
  return `${title}: ${ofWords(of, members.length)}${ON_NODES.has(of) ? ` on ${plural(hosts.size, "node")}` : ""}`;
}

export function drawGroup(cell, group, tone, toggle) {
  const [words, { rule, severity, isOpen }] = [groupWords(group), group];
  redraw(cell, [words, severity, isOpen], () => [make("div", { class: "stacked" }, make("span", { class: `pill ${tone}` }, severity), " ",
    make("button", { type: "button", class: "as-link name group-toggle", "aria-expanded": String(isOpen), "data-rule": rule, onclick: () => toggle(rule) }, words), make("small", {}, rule))]);
}

export function drawHosts(cell, { members }) {
  const hosts = [...new Set(members.map(({ host }) => host).filter(Boolean))].sort();
  const more = hosts.length > MOST_HOSTS ? ` and ${hosts.length - MOST_HOSTS} more` : "";
  redraw(cell, hosts, () => [make("span", { title: hosts.join(", ") }, hosts.slice(0, MOST_HOSTS).join(", ") + more)]);
}
