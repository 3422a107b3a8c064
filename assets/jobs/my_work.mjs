// The My work page: one's own jobs, what was done to them, one's leases and place in the queue.

import { begin } from "../actions/actions.mjs";
import { verb } from "../actions/action_words.mjs";
import { itemsOf, look, lookAtAll } from "../parts/api.mjs";
import { copyable } from "../parts/dialog.mjs";
import { byId, isShortcut, make, redraw, say, settle, show } from "../parts/dom.mjs";
import { age, amount, plural, secondsSince, when } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { askForGpus } from "../pool/lease_acts.mjs";
import { gpusOf } from "../pool/pool_model.mjs";
import { leaseRows, waitingRows } from "../pool/pool_tables.mjs";
import { barOf, useWords } from "../quotas/quota_bars.mjs";
import { jobRows } from "./my_work_jobs.mjs";

const EVERY_MS = 5_000;
const SLOW_MS = 60_000;
const DAY_S = 86_400;
const RECENT_S = 3 * DAY_S;
const MOST_DONE = 5;

export default class MyWork extends Looker {
  constructor(root, live, _holds, store) {
    super(live, EVERY_MS, { problem: byId("my-work-problem") });
    Object.assign(this, { root, gpus: new Map(), nodes: [], pool: null, slow: null, slowAt: -Infinity });
    this.jobs = jobRows((action, ids) => begin(action, ids), (job) => this.may("user") && job.act_on.length > 0);
    this.held = leaseRows(this, "Your leases", "You hold no lease.");
    this.waiting = waitingRows(this, "Your claims in the queue", "You are not waiting for GPUs.");
    for (const [name, rows] of [["jobs", this.jobs], ["leases", this.held], ["claims", this.waiting]]) byId(`my-work-${name}`).append(rows.root);
    byId("my-work-ask").addEventListener("click", () => askForGpus(this));
    document.addEventListener("keydown", (event) => { if (isShortcut(event) && event.key === "n" && !byId("my-work-ask").hidden) { event.preventDefault(); askForGpus(this); } });
    for (const name of ["lease", "claim"]) live.addEventListener(name, () => this.look());
    store.addEventListener("change", ({ detail }) => { if (detail?.state === "done") { this.slowAt = -Infinity; this.look(); } });
    this.begin();
  }

  async begin() {
    await this.meet();
    if (this.person !== null && this.person.unix_names.length === 0) this.drawUnbound();
    else this.look();
  }

  /** Of who has no name nothing is asked: everybody's jobs would come as their own. */
  get isSeen() { return super.isSeen && (this.person?.unix_names.length ?? 0) > 0; }

  get names() { return this.person.unix_names; }

  async ask() {
    const filter = this.names.map((name) => `user:"${name}"`).join(" | ");
    const [tasks, pool, leases, claims] = await Promise.all([look(`tasks?limit=1&group=job&sort=idle_s&order=desc&filter=${encodeURIComponent(filter)}`), look("pool"), lookAtAll("leases"), lookAtAll("claims")]);
    const isMine = ({ owner }) => this.isMine(owner);
    const mine = leases.filter(isMine);
    if (performance.now() - this.slowAt >= SLOW_MS) {
      this.slow = await this.askSlow(mine.length > 0 || (pool.is_on && pool.nodes > 0));
      this.slowAt = performance.now();
    }
    return { jobs: tasks.groups, pool, leases: mine, claims: claims.filter(isMine) };
  }

  /** What changes by the minute, or is dear to ask. */
  async askSlow(hasPool) {
    const ofEach = (path) => Promise.all(this.names.map((name) => look(path(encodeURIComponent(name)))));
    const now = Math.floor(Date.now() / 1000);
    const since = now - 7 * DAY_S;
    const [usage, found, quotas, commands, nodes] = await Promise.all([
      ofEach((name) => `usage?by=user&of=${name}&bucket=3600&start=${since}`), ofEach((name) => `findings?user=${name}`),
      ofEach((name) => `owners/${name}/quotas`), Promise.all(this.names.map((name) => itemsOf(`commands?limit=50&owner=${encodeURIComponent(name)}&since=${now - RECENT_S}`, []))), hasPool ? lookAtAll("pool/nodes") : []]);
    return { usage: usage.flatMap(({ items }) => items), findings: found.flatMap(({ items }) => items), unchecked: found.reduce((sum, { unchecked }) => sum + unchecked, 0),
      quotas: quotas.flatMap(({ items }) => items), commands: newestOf(commands.flat()).filter((one) => one.by?.name !== this.person.name), nodes };
  }

  take({ jobs, pool, leases, claims }) {
    Object.assign(this, { pool, nodes: this.slow.nodes, gpus: gpusOf(this.slow.nodes) });
    const isThere = pool.is_on && pool.nodes > 0;
    show(byId("my-work-there"), true);
    show(byId("my-work-ask"), this.may("user") && isThere);
    say(byId("my-work-words"), wordsOf(jobs, this.slow));
    this.jobs.update(jobs.map((job) => ({ ...job, findings: this.slow.findings.filter((one) => one.jobs.includes(job.first_job)) })));
    this.held.update(leases);
    this.waiting.update(claims);
    for (const [name, items] of [["leases", leases], ["claims", claims]]) show(byId(`my-work-${name}-section`), isThere || items.length > 0);
    this.drawFigures(jobs, pool, isThere);
    this.drawDone(jobs);
    this.drawQuotas();
    settle(this.root);
  }

  fail(error) {
    super.fail(error);
    settle(this.root);
  }

  drawUnbound() {
    const { name } = this.person;
    show(byId("my-work-none"), true);
    redraw(byId("my-work-none"), name, () => [
      make("h2", {}, "Your account has no Unix name"),
      make("p", {}, "A task belongs to the Unix user that it runs as. gpudeck shows yours here as soon as an admin has given your account that name, in Settings under Users, or on the hub's machine:"),
      copyable(`gpudeck user set ${name} --unix-name NAME`, "the line"),
      make("p", {}, "Who signs in by the site's provider has the name that the provider gives, and needs none of this.")]);
    settle(this.root);
  }

  drawFigures(jobs, pool, isThere) {
    const sum = (name) => this.slow.usage.reduce((all, one) => all + one[name], 0) / 3_600;
    const [held, idle] = [sum("gpu_s"), sum("idle_s")];
    const free = pool.models.reduce((all, one) => all + one.free, 0);
    const figures = [
      counted(jobs.reduce((all, job) => all + job.gpus, 0), "in use by you"),
      [amount(held, 1), "GPU-hours in 7 days", "Time in which a task of yours was on a GPU, as reports count it."],
      [held === 0 ? "–" : `${amount((100 * idle) / held)} %`, "of them idle", "Minutes in which the GPU’s utilization stayed at 5 % or less."],
      ...(isThere ? [counted(free, "free in the pool")] : [])];
    redraw(byId("my-work-figures"), figures, () => figures.map(([value, words, title = null]) => make("li", { title }, make("strong", {}, value), ` ${words}`)));
  }

  /** Newest first; of what is paused still, the way on. */
  drawDone(jobs) {
    const paused = jobs.filter((job) => job.paused > 0);
    const lines = this.slow.commands.slice(0, MOST_DONE);
    show(byId("my-work-done"), lines.length > 0);
    redraw(byId("my-work-done"), [lines, paused.map(({ key, act_on: ids }) => [key, ids])], () => lines.map((one) => {
      const job = one.action === "pause" && one.state === "done" ? paused.find(({ act_on: ids }) => one.task_ids.some((id) => ids.includes(id)) || ids.includes(one.task_id)) : undefined;
      const resume = make("button", { type: "button", class: "button small", onclick: () => begin("resume", [...job.act_on]) }, "Resume …");
      return make("li", {}, make("strong", {}, `${verb(one.action)}: ${one.state === "done" ? "done" : one.sentence || one.state}`), ` by ${one.by?.name ?? "somebody"} on ${one.host}, ${when(one.requested_at)}${one.reason ? `: “${one.reason}”` : ""}`,
        job === undefined || !this.may("user") ? null : resume);
    }));
  }

  drawQuotas() {
    const { quotas } = this.slow;
    show(byId("my-work-quotas-section"), quotas.length > 0);
    redraw(byId("my-work-quotas"), quotas, () => [make("ul", { class: "my-work-quotas" }, ...quotas.map((one) => make("li", {}, make("a", { href: `/quotas#${encodeURIComponent(one.quota)}` }, one.quota), make("span", { class: "numbers" }, useWords(one)), barOf(one))))]);
  }
}

const newestOf = (commands) => commands.sort((one, other) => other.requested_at - one.requested_at);

const counted = (gpus, words) => [amount(gpus), `${gpus === 1 ? "GPU" : "GPUs"} ${words}`];

function wordsOf(jobs, { findings, unchecked }) {
  const idle = jobs.filter((job) => (job.idle_s ?? 0) >= 60).length;
  const longest = jobs.map((job) => job.started_at).filter((at) => at !== null);
  return [jobs.length === 0 ? "No job of yours runs" : `${plural(jobs.length, "job")} on ${plural(jobs.reduce((all, job) => all + job.gpus, 0), "GPU")}`,
    longest.length === 0 ? "" : `the oldest for ${age(secondsSince(Math.min(...longest)))}`, idle === 0 ? "" : `${amount(idle)} idle`,
    findings.length === 0 ? "" : plural(findings.length, "finding"), unchecked === 0 ? "" : `${plural(unchecked, "job")} not checked for findings`].filter(Boolean).join(" · ");
}
