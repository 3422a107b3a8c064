// The panel beside the timelines and, for a node, the line above them with its state and actions. One GPU: all that its
// drawer says. A node, or several GPUs: who works there, what happened, how the boards reach each other, and the agent.

import { AlertLines } from "../alerts/alert_lines.mjs";
import { get, getEvents, look } from "../parts/api.mjs";
import { me } from "../parts/account.mjs";
import { byId, make, say, show } from "../parts/dom.mjs";
import { metricsOf } from "./chart_plan.mjs";
import { idleOf, IdleLine } from "../fleet/idle_gpus.mjs";
import { JobsHere } from "./jobs_here.mjs";
import { healthLines, limitLines } from "../fleet/board_words.mjs";
import { Facts, nodeFacts } from "../fleet/gpu_facts.mjs";
import { EventList } from "../live/event_lines.mjs";
import { alertsOf, spansOf } from "../alerts/firing.mjs";
import { age } from "../parts/format.mjs";
import { hostFacts } from "../fleet/host_words.mjs";
import { refusedWords } from "../fleet/node_words.mjs";
import { GpuDetails } from "../fleet/gpu_details.mjs";
import { holdLine } from "../actions/holds.mjs";
import { NodeMps } from "../actions/limits_panel.mjs";
import { ServicePanel } from "../actions/service_panel.mjs";
import { QuotaPanel } from "../quotas/quota_panel.mjs";
import { MOST_TASKS, tasksOf } from "../tasks/task_lines.mjs";
import { drawTopology } from "../fleet/topology.mjs";

const MOST_EVENTS = 30;
const SELDOM_MS = 5_000;
const BACK_S = 3_700; // as far as timelines reach
const NODE_WORDS = { live: "Live", suspect: "No data for a moment", silent: "Silent: current state unknown" };

export class MachineSide {
  constructor(page, root) {
    this.page = page;
    this.root = root;
    this.marks = [];
    this.alerts = [];
    this.seldomAt = -Infinity;
    this.alertsAt = -Infinity;
    this.found = [];
    this.lines = null;
    this.metricsBy = new Map();
    this.idleLine = new IdleLine();
    byId("lines-idle").append(this.idleLine.root);
  }

  async draw() {
    await Promise.allSettled([this.lookAtAlerts(), this.page.place.kind === "gpu" ? this.drawGpu() : this.drawMany()]);
  }

  async drawGpu() {
    const [gpu] = this.page.gpus;
    this.details ??= this.makeDetails();
    if (this.details.uuid !== gpu.uuid) this.details.start(gpu.uuid);
    await this.details.refresh();
    await this.details.panels;
  }

  makeDetails() {
    const details = new GpuDetails(this.root, this.page.book, this.page.holds, { nameOf: () => null, partsOf: () => 0, isOffline: () => false, idleLine: this.idleLine });
    details.addEventListener("events", ({ detail }) => this.mark(detail));
    return details;
  }

  /** Of all that the time bar spans. */
  async lookAtAlerts(isNow = false) {
    if (this.page.gpus.length === 0 || (!isNow && performance.now() - this.alertsAt < SELDOM_MS)) return;
    this.alertsAt = performance.now();
    const now = Date.now() / 1000;
    const [found, rules] = await Promise.all([alertsOf(this.page.gpus.map(({ uuid }) => uuid), Math.min(now - BACK_S, this.page.past?.bar.start ?? now), now), get("rules")]).catch(() => [null]);
    if (found === null) return; // the banner says how we stand with the hub
    this.metricsBy = new Map(rules.items.map(({ rule }) => [rule.id, metricsOf(rule.signal)]));
    this.found = found;
    this.alerts = spansOf(found);
    this.page.past?.mark(found);
    this.lines?.draw(found.filter(({ state }) => state !== "ended"));
    this.page.redrawAll();
  }

  /** Those that are marked in this chart: their rule is about what it shows. */
  alertsOf({ rows }) {
    return this.alerts.filter(({ rule, isSilenced: isKnown }) => !isKnown && rows.some(({ key }) => this.metricsBy.get(rule)?.has(key)));
  }

  mark(events) {
    this.marks = events.map(({ at, severity }) => ({ at, kind: severity }));
    this.page.redrawAll();
  }

  build() {
    const { place } = this.page;
    Object.assign(this, { lines: new AlertLines(), jobs: new JobsHere(), events: new EventList("No recent events.") });
    const jobs = [make("h3", {}, place.kind === "node" ? "Jobs on this node" : "Jobs on these GPUs"), this.jobs.root];
    const events = [make("h3", {}, "Events"), this.events.root];
    if (place.kind !== "node") this.root.replaceChildren(...jobs, this.lines.root, ...events);
    else this.root.replaceChildren(...this.buildNode(jobs, events));
  }

  /** What is looked at first stands first; what rarely changes, last. */
  buildNode(jobs, events) {
    const { node, holds } = this.page;
    this.state = byId("lines-state");
    this.service = new ServicePanel(node.id, null, () => this.taskIds ?? []);
    Object.assign(this, { limits: new Facts(), health: new Facts(), facts: new Facts(), host: new Facts({ isStacked: true }), topology: make("div", {}) });
    this.mps = new NodeMps(node.id, (uuid) => this.page.gpus.find((gpu) => gpu.uuid === uuid)?.index);
    this.quotas = new QuotaPanel("node");
    const parts = [["Limits in force", this.limits.root], ["MPS", this.mps.root], ["Quotas", this.quotas.root], ["Health", this.health.root], ["Host", this.host.root], ["Links between GPUs", this.topology], ["Agent", this.facts.root]];
    byId("lines-acts").setAttribute("aria-busy", "true");
    byId("lines-acts").replaceChildren(this.service.root, holdLine(holds, node.id, node.host));
    show(byId("lines-now"), true);
    return [...jobs, this.lines.root, ...parts.slice(0, 4).flatMap(([words, root]) => [make("h3", {}, words), root]), ...events, ...parts.slice(4).flatMap(([words, root]) => [make("h3", {}, words), root])];
  }

  async drawMany() {
    if (this.jobs === undefined) this.build();
    const { node, place, gpus } = this.page;
    const panels = place.kind === "node" ? this.drawNode(node, gpus) : null;
    if (performance.now() - this.seldomAt < SELDOM_MS) return;
    this.seldomAt = performance.now();
    await Promise.allSettled([this.drawTasks(), this.drawEvents(), panels]); // the banner says it
  }

  drawNode(node, gpus) {
    const { word, why } = node.health ?? { word: node.state, why: NODE_WORDS[node.state] ?? node.state };
    const words = refusedWords(node) ?? why;
    const isRead = word === "healthy" || word === "maintenance"; // else what came last is no data of its GPUs
    say(this.state, node.last_heard_at === null || !(isRead || word === "silent" || word === "suspect") ? words : `${words}, last data ${age(Date.now() / 1000 - node.last_heard_at)} ago`);
    this.state.className = `drawer-state ${isRead ? "ok" : word === "silent" ? "offline" : "stale"}`;
    this.limits.draw(limitLines(gpus).filter(([, words]) => words !== null));
    this.health.draw(healthLines(gpus));
    this.facts.draw(nodeFacts(node));
    this.host.draw(hostFacts(node.host_load ?? null));
    drawTopology(this.topology, node.links ?? [], gpus);
    return Promise.allSettled([this.drawActs(node), this.mps.refresh(node.id), this.quotas.refresh(node.id)]);
  }

  /** Shown once it is known what one may do: nothing there moves. */
  async drawActs(node) {
    await Promise.all([me().catch(() => null), this.service.refresh(node.id), this.page.holds.ready]);
    byId("lines-acts").removeAttribute("aria-busy");
  }

  async drawTasks() {
    const { place, gpus, node } = this.page;
    if (place.kind === "node") {
      const found = await look(`tasks?node=${encodeURIComponent(node.id)}&limit=${MOST_TASKS}&sort=mem_used_bytes&order=desc`);
      this.taskIds = found.items.map(({ id }) => id);
      this.drawJobs(found.items, found.total);
      const idle = idleOf(gpus);
      this.idleLine.draw(idle, found.items, gpus.length > 1);
      return;
    }
    const ids = [...new Set(gpus.flatMap((gpu) => gpu.tasks))];
    this.drawJobs(await tasksOf({ tasks: ids }), ids.length);
  }

  drawJobs(tasks, count) {
    const { gpus, labels } = this.page;
    this.jobs.draw(tasks, { count, gpus, nameOf: (at) => labels.get(gpus[at].uuid).short ?? labels.get(gpus[at].uuid).label });
    this.page.nameOwners(new Map(gpus.map(({ uuid }) => [uuid, ownersAt(uuid, tasks)]).filter(([, words]) => words !== "")));
  }

  async drawEvents() {
    const { place, gpus, node } = this.page;
    const queries = place.kind === "node" ? [{ node: node.id, limit: MOST_EVENTS }] : gpus.map(({ uuid }) => ({ gpu: uuid, limit: MOST_EVENTS }));
    const answers = await Promise.all(queries.map(getEvents));
    const items = answers.flatMap((answer) => answer.items).sort((one, other) => other.at - one.at).slice(0, MOST_EVENTS);
    this.events.draw(items);
    this.mark(items.filter(({ severity, kind }) => severity !== "info" || kind.startsWith("task_")));
  }
}

/** "ana" or "ana, bo", of whose tasks use the GPU. */
const ownersAt = (uuid, tasks) => [...new Set(tasks.filter(({ gpus }) => gpus.some((use) => use.uuid === uuid)).map(({ user }) => user ?? "owner unknown"))].join(", ");
