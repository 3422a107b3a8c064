// The page of a job or launch: what is wrong with it, its ranks side by side, what it is and used.

import { begin, pressed } from "../actions/actions.mjs";
import { ApiError, look, lookAtAll } from "../parts/api.mjs";
import { byId, factLines, isTyping, make, redraw, say, settle, show } from "../parts/dom.mjs";
import { age, amount, bytesWords, moment, plural, secondsSince } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { leaseRows } from "../pool/pool_tables.mjs";
import { shortCommand } from "../parts/commands.mjs";
import { SIGNS } from "./job_signs.mjs";
import { JobMap, METRICS, nameOf } from "./job_map.mjs";

const EVERY_MS = 15_000;
const NEW_EVERY_MS = 3_000; // until there is something to see
const NAMES = { ...Object.fromEntries(Object.entries(METRICS).map(([key, { say: words }]) => [key, words])), util_max_pct: (value) => `${amount(value)} %`, cpu_pressure_pct: (value) => `${amount(value)} %`, sm_clock_mhz: (value) => `${amount(value)} MHz` };
const LABELS = { util_pct: "Utilization", power_w: "Power", mem_used_bytes: "Memory", mem_util_pct: "Memory traffic", util_max_pct: "Peak utilization", sm_clock_mhz: "SM clock", temp_c: "Temperature", nvlink_tx_bytes_per_s: "NVLink sent", host_cpu_pct: "Host CPU", io_pressure_pct: "Disk pressure", cpu_pressure_pct: "CPU pressure" };

export default class Job extends Looker {
  constructor(root, live, _holds, store) {
    super(live, EVERY_MS, { problem: byId("job-problem"), what: "job" });
    Object.assign(this, { root, page: null, gpus: new Map(), id: decodeURIComponent(location.pathname.slice("/job/".length)) });
    this.metric = new URLSearchParams(location.search).get("metric");
    if (!(this.metric in METRICS)) this.metric = byId("job-map").dataset.metric;
    this.map = new JobMap(byId("job-map"), byId("job-scale"));
    this.acts = Object.fromEntries([["pause", "Pause job"], ["resume", "Resume job"], ["end", "End job"]].map(([action, words]) => [action, this.button(action, words)]));
    byId("job-acts").append(...Object.values(this.acts));
    this.leases = leaseRows(this, "Leases of this job");
    byId("job-leases").append(this.leases.root);
    byId("job-metric").addEventListener("click", ({ target }) => target.dataset.metric && this.choose(target.dataset.metric));
    document.addEventListener("keydown", (event) => this.onKey(event));
    store.addEventListener("change", ({ detail }) => { if (detail?.state === "done") this.look(); });
    this.meet().then(() => this.page !== null && this.draw());
    this.look();
  }

  button(action, words) {
    const made = make("button", { type: "button", class: `button${action === "end" ? " danger" : ""}`, hidden: "", "data-act": action }, words);
    pressed(made, () => { const ids = [...this.page.tasks_now.act_on]; return (event) => begin(action, ids, { x: event.clientX, y: event.clientY }); });
    return made;
  }

  async ask() {
    const span = new URLSearchParams([...new URLSearchParams(location.search)].filter(([name]) => ["start", "end"].includes(name)));
    const page = await look(`jobs/${encodeURIComponent(this.id)}?${span}`);
    const now = new Set(page.tasks_now?.ids ?? []);
    const leases = now.size === 0 ? [] : await lookAtAll("leases");
    return { page, leases: leases.filter(({ task_ids: ids }) => ids.some((id) => now.has(id))) };
  }

  take({ page, leases }) {
    this.page = page;
    this.everyMs = page.is_running && page.ranks.length === 0 ? NEW_EVERY_MS : EVERY_MS;
    this.root.classList.remove("nowhere");
    this.gpus = new Map(page.ranks.map(({ gpu, host, place }) => [gpu, { host, place, model: "" }]));
    this.leases.update(leases);
    show(byId("job-lease-section"), leases.length > 0);
    this.draw();
    this.stand();
  }

  fail(error) {
    this.stand();
    if (!(error instanceof ApiError && error.status === 404)) return super.fail(error);
    this.everyMs = NEW_EVERY_MS;
    this.root.classList.add("nowhere");
    say(byId("job-title"), "Unknown job");
    this.complain("No such job: it may be older than the stored history, or outside your scope. This page shows one that has just started within seconds.");
    return undefined;
  }

  stand() { settle(this.root); }

  choose(metric) {
    this.metric = metric;
    const query = new URLSearchParams(location.search);
    query.set("metric", metric);
    history.replaceState(history.state, "", `?${query}`);
    if (this.page !== null) this.draw();
  }

  onKey(event) {
    if (isTyping(event.target) || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const keys = Object.keys(METRICS).filter((key) => key === this.metric || this.page === null || isReported(this.page, key));
    this.choose(keys[(keys.indexOf(this.metric) + step + keys.length) % keys.length]);
  }

  draw() {
    const { job, is_running: isRunning, findings } = this.page;
    say(byId("job-title"), shortCommand(job.command));
    byId("job-title").title = job.command ?? "";
    say(byId("job-subtitle"), subtitleOf(job, isRunning));
    for (const button of byId("job-metric").children) {
      const { metric } = button.dataset;
      button.setAttribute("aria-pressed", String(metric === this.metric));
      show(button, metric === this.metric || isReported(this.page, metric));
    }
    const { act_on: actOn = [], paused = 0 } = this.page.tasks_now ?? {};
    const mayAct = this.mayChange(job.user) && actOn.length > 0;
    for (const [action, button] of Object.entries(this.acts)) show(button, mayAct && (action === "end" || (action === "resume") === paused > 0));
    redraw(byId("job-findings"), [findings, isRunning], () => findingLines(this.page));
    this.map.draw(this.page, this.metric, new Set(findings.flatMap(({ ranks }) => (ranks.length === this.page.ranks.length ? [] : ranks))));
    redraw(byId("job-facts"), [job, this.page.totals, this.page.serving, this.page.checkpoints, this.page.step_period_s, this.page.cost_per_million_tokens], () => factLines(factsOf(this.page)));
    redraw(byId("job-events"), this.page.events, () => eventLines(this.page));
  }
}

/** Whether any of its boards or hosts has it; before there is any history, that is not known. */
const isReported = ({ ranks, series }, metric) => ranks.length === 0 || series[metric].some((row) => row.some((value) => value !== null));

function subtitleOf({ user, team, hosts, gpus, started_at: at, ended_at: ended }, isRunning) {
  const since = at === null ? [] : [isRunning ? `for ${age(secondsSince(at))}` : `from ${moment(at)}`];
  const state = isRunning ? "running" : ended === null ? "ended at an unknown time" : `ended ${moment(ended)}`;
  return [`${user ?? "owner unknown"}${team ? ` (${team})` : ""}`, hosts.join(", "), plural(gpus, "GPU"), state, ...since].join("  ·  ");
}

function findingLines({ findings, ranks }) {
  if (findings.length === 0) return [make("li", { class: "job-well" }, "No findings.")];
  return findings.map(({ kind, sentence, since, ranks: rows, evidence }) => make("li", { class: `finding ${kind}` },
    make("strong", {}, SIGNS[kind] ?? kind), make("p", {}, sentence, since === null ? "" : ` Since ${moment(since)}.`),
    make("dl", {}, ...evidence.filter(({ value }) => value !== null).map(({ metric, value, against, against_is: words }) => make("div", {}, make("dt", {}, LABELS[metric] ?? metric), make("dd", {}, `${NAMES[metric]?.(value) ?? amount(value, 1)}${against === null ? ` ${words}` : `; ${words} ${NAMES[metric]?.(against) ?? amount(against, 1)}`}`)))),
    rows.length > 0 && rows.length < ranks.length ? make("p", { class: "finding-ranks" }, rows.slice(0, 8).map((row) => nameOf(ranks[row] ?? { number: null, host: "?", place: "?" })).join(", ")) : null));
}

/** Of each server: what it does now, or why that is not known. */
function servingOf({ serving = [] }) {
  const has = (value, words) => (value === null ? [] : [words(value)]);
  return serving.map((of) => [`Serves (${of.engine})`, of.trouble || [
    ...has(of.generated_tokens_per_s, (value) => `${amount(value)} tokens/s`), ...has(of.running, (value) => `${plural(value, "request")} running`),
    ...has(of.waiting, (value) => `${amount(value)} waiting`), ...has(of.cache_pct, (value) => `KV cache ${amount(value)} %`),
    ...has(of.first_token_s, (value) => `first token after ${amount(value, 2)} s`), ...has(of.joules_per_million_tokens, (value) => `${amount(value / 3.6e6, 2)} kWh per million tokens`),
  ].join(", ")]);
}

/** It had begun before this hub first heard of it. */
const isPartly = ({ started_at: began, first_seen: seen }) => began !== null && began < seen - 120;

const checkpointWords = ({ last_at: last, every_s: every, next_at: next }) => `every ${age(every)}; the last one at ${moment(last)}, the next one about ${moment(next)}`;

function factsOf({ job, totals, ranks, serving, checkpoints = [], step_period_s: step = null, cost_per_million_tokens: cost = null }) {
  const known = [["Launch", job.launch], ["Slurm job", job.slurm_job], ["Pod", job.pod && `${job.namespace ?? ""}/${job.pod}`], ["Container", job.container?.slice(0, 12)], ["Unit", job.unit], ["Managed by", job.manager]].filter(([, words]) => words);
  const has = (value, words) => (value === null ? "not known" : words(value));
  const memory = ranks.map(({ mem_total_bytes: total }) => total).filter((total) => total !== null);
  return [
    ["Command", job.command ?? "not known"], ...servingOf({ serving }), ...(step === null ? [] : [["Steps", `one every ${amount(step, 1)} s, by its power`]]), ...checkpoints.map((one) => ["Checkpoints", checkpointWords(one)]), ...known, ["Nodes", job.hosts.join(", ")], ["Processes", String(job.tasks)],
    ...(cost === null ? [] : [["Cost", `${amount(cost, 2)} per million tokens, by the team's price for a GPU-hour`]]),
    ["GPU memory", memory.length > 0 ? `${bytesWords(memory[0])} a GPU` : "not known"],
    ["Held", `${amount(totals.gpu_hours, 1)} GPU-hours${isPartly(job) ? ", as far as recorded" : ""}`], ["Used", has(totals.util_pct, (value) => `${amount(value, 1)} % average utilization`)],
    ["Idle", has(totals.idle_hours, (value) => `${amount(value, 1)} GPU-hours`)], ["Energy", has(totals.energy_kwh, (value) => `${amount(value, 1)} kWh`)],
    ["First seen", moment(job.first_seen)],
  ];
}

const eventLines = (page) => (page.events.length === 0 ? [make("li", {}, "No events on its GPUs in this time.")]
  : together(page).reverse().map(({ t, gpus, what }) => make("li", {}, make("time", {}, moment(t)), ` ${gpus.length === 0 ? "" : `GPU ${gpus.sort().join(", ")}: `}`, make("span", {}, what))));

/** What all GPUs of a job report within a minute is one line; of a launch over nodes, with the node. */
export function together({ events, ranks, job }) {
  const found = new Map();
  const hosts = new Map(ranks.map(({ gpu: uuid, host }) => [uuid, host]));
  for (const { t, kind, text, gpu: uuid } of events) {
    const [, place, said] = text.match(/^GPU ([\d/]+): (.*)$/s) ?? [null, null, text];
    const what = said === "" ? kind.replaceAll("_", " ") : said;
    const gpu = place !== null && job.hosts.length > 1 && hosts.has(uuid) ? `${hosts.get(uuid)}:${place}` : place;
    const key = JSON.stringify([moment(t), what, gpu === null]);
    if (!found.has(key)) found.set(key, { t, what, gpus: [] });
    if (gpu !== null && !found.get(key).gpus.includes(gpu)) found.get(key).gpus.push(gpu);
  }
  return [...found.values()];
}
