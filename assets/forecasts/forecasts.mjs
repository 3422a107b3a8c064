// The Forecasts page: what is likely to come, and how right that would have been on this fleet's own past.

import { look } from "../parts/api.mjs";
import { Graph } from "../charts/graph.mjs";
import { sentence } from "../parts/dialog.mjs";
import { byId, make, onTheme, say, sayOrHide, settle, show } from "../parts/dom.mjs";
import { age, amount, bytesWords, moment, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { gpuAddress } from "../parts/missing.mjs";

const EVERY_MS = 30_000;
const HOUR_S = 3_600;
const HOURS_PX = 560;
const DIFFERS = 1.1; // busiest to quietest hours
const FAR_S = 29.9 * 86_400; // from here on nothing is said

export default class ForecastsPage extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("forecasts-problem"), what: "forecast" });
    Object.assign(this, { root, drawn: "" });
    this.graph = new Graph("forecasts-graph");
    onTheme(() => { this.drawn = ""; this.look(); });
    this.look();
  }

  ask() { return look("forecasts"); }

  take({ memory, demand, run_times: runs, waits }) {
    say(byId("forecasts-words"), memory.at === null ? "History is being read." : `As of ${moment(memory.at)}`);
    this.drawHours(demand);
    this.drawDemand("demand", demand.find(({ name }) => name === "gpus_held"), HELD);
    this.drawDemand("queue", demand.find(({ name }) => name === "gpus_waited_for"), WAITED);
    this.drawDemand("power", kilowatts(demand.find(({ name }) => name === "power_w")), POWER);
    drawSpans("runs", runs, runs.why === "" && runs.items.length === 0 ? "No lease that is active now can be predicted from earlier runs." : "", leasesOf, "run");
    drawSpans("waits", waits, "", waitsOf, "wait");
    this.drawMemory(memory);
    settle(this.root);
  }

  fail(error) {
    super.fail(error);
    settle(this.root);
  }

  /** The figure of the hub's, again when an hour is over; none of a past of less than two hours. */
  async drawHours(demand) {
    const isDrawn = demand.some(({ recent }) => recent.filter((value) => value !== null).length >= 2);
    const wanted = demand.map(({ name, starts_at: at }) => `${name} ${at}`).join();
    show(byId("forecasts-hours"), isDrawn);
    if (!isDrawn || wanted === this.drawn) return;
    this.drawn = wanted;
    try {
      await this.graph.ask({}, { height: HOURS_PX, at: demand[0].starts_at });
      sayOrHide(byId("forecasts-hours-problem"), "");
    } catch (error) {
      this.drawn = "";
      sayOrHide(byId("forecasts-hours-problem"), sentence(error.message));
    }
  }

  drawDemand(place, demand, unit) {
    const [words, test] = ["words", "test"].map((part) => byId(`forecasts-${place}-${part}`));
    if (demand === undefined) {
      say(words, "Shown to users who see the whole fleet, once history has been read.");
      return say(test, "");
    }
    say(words, [demand.why === "" ? unit.next(demand) : `Not known: ${demand.why}.`, busiestWords(demand, unit)].filter((part) => part !== "").join(" "));
    say(test, demand.test === null ? "" : testWords(demand.test, unit));
    return undefined;
  }

  drawMemory({ items, test }) {
    say(byId("forecasts-memory-words"), items.length === 0 ? "No task's memory grew in all of the last 48 minutes." : `${plural(items.length, "task")} grew in all of the last 48 minutes.`);
    byId("forecasts-memory").replaceChildren(...(items.length === 0 ? [] : [tableOf(items)]));
    say(byId("forecasts-memory-test"), test.forecasts === 0 ? "" : `Test: ${plural(test.forecasts, "forecast")} of 64 minutes within the last week were off by ${bytesWords(test.error_bytes)} on average; assuming constant memory, by ${bytesWords(test.naive_error_bytes)}.`);
  }
}

const HELD = { unit: "GPUs", per: 1, next: nextWords };
const WAITED = { unit: "GPUs", per: 1, next: waitedWords };
const POWER = { unit: "kW", per: 1_000, next: powerWords };

function kilowatts(demand) {
  if (demand === undefined) return undefined;
  const scaled = (values) => values.map((value) => (value === null ? null : value / POWER.per));
  return { ...demand, p10: scaled(demand.p10), p50: scaled(demand.p50), p90: scaled(demand.p90) };
}

function powerWords({ starts_at: start, p10, p50, p90 }) {
  const top = p50.indexOf(Math.max(...p50));
  return `Peak at ${moment(start + top * HOUR_S)}: about ${amount(p50[top], 1)} kW (${amount(p10[top], 1)} to ${amount(p90[top], 1)} in 8 of 10 cases).`;
}

function waitedWords({ starts_at: start, p10, p50, p90 }) {
  const top = p50.indexOf(Math.max(...p50));
  return `Peak at ${moment(start + top * HOUR_S)}: claims for about ${amount(p50[top])} GPUs wait (${amount(p10[top])} to ${amount(p90[top])} in 8 of 10 cases).`;
}

function nextWords({ starts_at: start, p10, p50, p90, gpus }) {
  const top = p50.indexOf(Math.max(...p50));
  return `Peak at ${moment(start + top * HOUR_S)}: about ${amount(p50[top])} of ${amount(gpus)} GPUs held (${amount(p10[top])} to ${amount(p90[top])} in 8 of 10 cases), ${amount(Math.max(0, gpus - p50[top]))} free (${amount(Math.max(0, gpus - p90[top]))} to ${amount(Math.max(0, gpus - p10[top]))}).`;
}

/** The three hours in a row in which it is highest on a usual day, where they differ from the others; in local time. */
function busiestWords({ usual_day: day }, { unit, per }) {
  if (day.length === 0) return "";
  const sums = day.map((_, hour) => [0, 1, 2].reduce((sum, more) => sum + day[(hour + more) % 24], 0) / 3);
  const top = sums.indexOf(Math.max(...sums));
  if (sums[top] <= DIFFERS * Math.min(...sums)) return "";
  const local = (hour) => `${(((hour - Math.round(new Date().getTimezoneOffset() / 60)) % 24) + 24) % 24}:00`;
  return `Busiest on a usual day of the last two weeks: ${local(top)} to ${local(top + 3)}, with ${amount(sums[top] / per, per === 1 ? 0 : 1)} ${unit}.`;
}

function testWords({ days, errors, method, best_naive: naive, ratio, covered_pct: covered }, { unit, per }) {
  const inside = covered === null ? "" : ` ${amount(covered)} % of the hours were within p10 and p90.`;
  return `Test: ${plural(days, "day")} of the past, forecast from what was known before them: off by ${amount(errors[method] / per, 1)} ${unit} on average, the best naive guess (${naive}) by ${amount(errors[naive] / per, 1)}, which makes ${amount(100 * ratio)} % of its error.${inside}`;
}

function drawSpans(place, { items, test, why }, words, rowsOf, what) {
  say(byId(`forecasts-${place}-words`), why === "" ? words : `Not known: ${why}.`);
  byId(`forecasts-${place}`).replaceChildren(...(items.length === 0 ? [] : [rowsOf(items)]));
  say(byId(`forecasts-${place}-test`), test === null ? "" : spanTestWords(test, what));
}

function spanTestWords({ runs, off_by: off, naive_off_by: naive, inside_pct: inside }, what) {
  const guesses = Object.entries(naive).map(([name, factor]) => `${name} by ${amount(factor, 2)}`);
  return `Test: ${plural(runs, what)} of the past, each predicted from those before it: off by a factor of ${amount(off, 2)} on average; ${guesses.join(", ")}. ${amount(inside)} % were within the middle half, where 50 % are expected.`;
}

const leasesOf = (items) => table(["Owner", "Node", "GPUs", "Ends in", "From"], items.map(({ owner, host, gpus, left }) => [owner, host, amount(gpus), spanWords(left), `${plural(left.runs, "run")}: ${left.of}`]));

const waitsOf = (items) => table(["Claims for", "Wait", "9 of 10 within", "From"], items.map(({ size, waits, wait }) => [size, wait === null ? "not known" : spanWords(wait), wait === null ? "" : age(wait.p90_s), plural(wait === null ? waits : wait.runs, "wait")]));

const spanWords = ({ p25_s: low, p50_s: mid, p75_s: high }) => `${age(mid)} (half of them ${age(low)} to ${age(high)})`;

const tableOf = (items) => table(["Owner", "GPU", "Grows by", "Full to 95 % in"], items.map((item) => [
  item.user ?? "unknown owner", make("a", { href: gpuAddress(item.host, item.place) }, `${item.host} ${item.place}`), growthWords(item.bytes_per_s),
  item.full_in_s === null ? make("span", { class: "forecast-why", title: item.why }, "not known") : fullWords(item.full_in_s)]));

/** Of each row, the first cell is its head. */
function table(heads, rows) {
  return make("table", { class: "report" },
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...rows.map(([first, ...cells]) => make("tr", {}, make("th", { scope: "row" }, first),
      ...cells.map((cell, at) => make("td", { "data-head": heads[at + 1] }, cell))))));
}

function growthWords({ low, mid, high }) {
  return `${bytesWords(mid * HOUR_S)} an hour (${bytesWords(low * HOUR_S)} to ${bytesWords(high * HOUR_S)})`;
}

function fullWords({ low, mid, high }) {
  if (mid >= FAR_S) return "more than 30 d";
  return `${age(mid)} (${age(low)} to ${high >= FAR_S ? "more than 30 d" : age(high)})`;
}
