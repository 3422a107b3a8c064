// The table of a report: sortable, with the sum at its foot.

import { make, say, show } from "../parts/dom.mjs";
import { amount, bytesWords } from "../parts/format.mjs";

const NONE = "–";
const TWO = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
// Of little, more digits: ten minutes are not nothing.
export const fine = (value) => (value < 9.995 ? TWO.format(value) : amount(value, 1));
const atLeast = (item, words) => (item.energy_share < 0.995 ? `≥ ${words}` : words);

// Key, head, what it means, how it is written.
const COLUMNS = [
  ["idle_hours", "Idle GPU-hours", "Hours held in minutes in which utilization never exceeded 5 %", (item) => (item.idle_hours === null ? NONE : fine(item.idle_hours))],
  ["idle_cost", "Idle cost", "Idle GPU-hours at the price above", (item, money) => (item.idle_cost === null ? NONE : money(item.idle_cost))],
  ["idle_share", "Idle", "Idle share of the GPU-hours with known utilization", (item) => (item.idle_share === null ? NONE : `${amount(100 * item.idle_share, 1)} %`)],
  ["gpu_hours", "GPU-hours", "Hours in which a task was on a GPU, total over all GPUs", (item) => fine(item.gpu_hours)],
  ["util_pct", "Avg utilization", "Average GPU utilization while held: the share of time in which any kernel ran, not the share of the chip", (item) => (item.util_pct === null ? NONE : `${amount(item.util_pct, 1)} %`)],
  ["mem_used_bytes", "Avg memory", "Average memory held per GPU while tasks were on it", (item) => bytesWords(item.mem_used_bytes)],
  ["mem_max_bytes", "Peak memory", "Highest memory of one job on one GPU", (item) => bytesWords(item.mem_max_bytes)],
  ["energy_kwh", "Energy", "Energy drawn by the GPUs while held, in kWh; split evenly between owners sharing a GPU", (item) => (item.energy_kwh === null ? NONE : atLeast(item, `${fine(item.energy_kwh)} kWh`))],
  ["co2_kg", "CO₂", "Energy at the grams of CO₂ per kWh above", (item) => (item.co2_kg === null ? NONE : atLeast(item, `${fine(item.co2_kg)} kg`))],
  ["cost", "Cost", "GPU-hours and energy at the prices above", (item, money, hasKwh) => (item.cost === null ? NONE : hasKwh ? atLeast(item, money(item.cost)) : money(item.cost))],
];
export const HEADS = { user: "Owner", team: "Team", job: "Job", launch: "Launch", slurm_job: "Slurm job", container: "Container", pod: "Pod", namespace: "Namespace", unit: "Systemd unit", node: "Node", model: "GPU model", gpu: "GPU" };
export const unknownWords = (by) => (by === "user" || by === "team" ? "unknown owner" : `${HEADS[by]} not known`);

export const moneyWords = (value, currency) => `${TWO.format(value)}${currency === "" ? "" : ` ${currency}`}`;

export class ReportTable {
  constructor(place, sorted) {
    Object.assign(this, { place, sorted, body: make("tbody", {}), foot: make("tfoot", {}), headRow: make("tr", {}) });
    this.table = make("table", { class: "report" }, make("thead", {}, this.headRow), this.body, this.foot);
    this.empty = make("p", { class: "none", role: "status" }, "Loading …");
    this.heads = [["name", "", "", null], ...COLUMNS].map(([key, words, meaning]) => this.head(key, words, meaning));
    place.append(this.table, this.empty);
    show(this.table, false);
  }

  head(key, words, meaning) {
    const button = make("button", { type: "button", class: "as-link", title: meaning, "data-sort": key }, words);
    const cell = make("th", { scope: "col", class: key === "name" ? null : "number" }, button);
    // The whole cell: the words of a right-aligned head fill a corner of it.
    cell.addEventListener("click", () => this.sorted(key, this.sort === key ? (this.order === "desc" ? "asc" : "desc") : key === "name" ? "asc" : "desc"));
    this.headRow.append(cell);
    return { key, cell, button };
  }

  draw(report, view, { span }) {
    Object.assign(this, { sort: view.sort, order: view.order });
    const { items } = report;
    show(this.table, items.length > 0);
    show(this.empty, items.length === 0);
    say(this.empty, report.since === null ? "No history yet: it starts with the first task on a GPU." : "No GPU was held in this time.");
    const hasCost = report.price_gpu_hour !== null || report.price_kwh !== null;
    const isLeftOut = (key) => (key === "cost" && !hasCost) || (key === "idle_cost" && report.total.idle_cost === null) || (key === "co2_kg" && report.co2_g_per_kwh === null);
    const shown = COLUMNS.filter(([key]) => !isLeftOut(key));
    say(this.heads[0].button, HEADS[view.by]);
    for (const { key, cell } of this.heads) {
      show(cell, !isLeftOut(key));
      if (key === view.sort) cell.setAttribute("aria-sort", view.order === "desc" ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    const money = (value) => moneyWords(value, view.currency);
    const cells = (item) => shown.map(([, head, , words]) => make("td", { class: "number", "data-head": head }, words(item, money, report.price_kwh !== null)));
    this.body.replaceChildren(...ordered(items, view).map((item) => make("tr", {}, make("th", { scope: "row" }, nameOf(item, view.by, span)), ...cells(item))));
    this.foot.replaceChildren(make("tr", {}, make("th", { scope: "row" }, "Total"), ...cells(report.total)));
  }
}

function nameOf(item, by, span) {
  if (item.of === null) return unknownWords(by);
  if (by === "job" && item.name !== item.of) return make("a", { href: `/job/${encodeURIComponent(item.of)}`, title: item.name }, item.name);
  const past = { user: ["owner", `user:${item.of}`], team: ["team", item.of], node: ["node", item.of], gpu: ["gpu", item.of] }[by];
  if (past === undefined || item.of === "") return item.name;
  return make("a", { href: `/history?${past[0]}=${encodeURIComponent(past[1])}&${span}`, title: "Over time" }, item.name);
}

/** Pure. undefined: there is none. */
export const mostIdle = (items) => ordered(items, { sort: "idle_hours", order: "desc" })[0];

/** Pure. The largest `count` by `key`; who has most idle hours is always one of them. */
export function largestOf(items, key, count) {
  const [waster, found] = [mostIdle(items), ordered(items, { sort: key, order: "desc" }).slice(0, count)];
  return waster === undefined || found.includes(waster) ? found : [...found.slice(0, count - 1), waster];
}

/** What is not known comes last, either way. */
function ordered(items, { sort, order }) {
  const sign = order === "asc" ? 1 : -1;
  const value = (item) => item[sort] ?? null;
  return [...items].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  });
}
