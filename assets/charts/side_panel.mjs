// What stands beside the timelines. One GPU: all that its drawer says. A node, or several GPUs: who
// works there, what happened, how the boards reach each other, and the agent.

import { AlertLines } from "../alerts/alert_lines.mjs";
import { isExplained } from "../alerts/alert_words.mjs";
import { get, getEvents, look } from "../parts/api.mjs";
import { byId, make, say } from "../parts/dom.mjs";
import { metricsOf } from "./chart_plan.mjs";
import { idleOf, IdleLine } from "./idle_gpus.mjs";
import { Facts, nodeFacts } from "../fleet/gpu_facts.mjs";
import { EventList } from "../live/event_lines.mjs";
import { alertsOf, spansOf } from "../alerts/firing.mjs";
import { age } from "../parts/format.mjs";
import { refusedWords } from "../fleet/node_words.mjs";
import { GpuDetails } from "../fleet/gpu_details.mjs";
import { holdLine } from "../actions/holds.mjs";
import { NodeMps } from "../actions/limits_panel.mjs";
import { QuotaPanel } from "../quotas/quota_panel.mjs";
import { MOST_TASKS, TaskLines, tasksOf } from "../tasks/task_lines.mjs";
import { drawTopology } from "../fleet/topology.mjs";

const MOST_EVENTS = 30;
const SELDOM_MS = 5_000;
const BACK_S = 3_700; // as far as timelines reach
const NODE_WORDS = { live: "Live", suspect: "No data for a moment", silent: "Silent: current state unknown" };

export class MachineSide {
  constructor(page, root) {
    Object.assign(this, { page, root, marks: [], alerts: [], seldomAt: -Infinity, alertsAt: -Infinity, lines: null, metricsBy: new Map() });
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

  async lookAtAlerts() {
    if (this.page.gpus.length === 0 || performance.now() - this.alertsAt < SELDOM_MS) return;
    this.alertsAt = performance.now();
    const now = Date.now() / 1000;
    const [found, rules] = await Promise.all([alertsOf(this.page.gpus.map(({ uuid }) => uuid), now - BACK_S, now), get("rules")]).catch(() => [null]);
    if (found === null) return; // the banner says how we stand with the hub
    this.metricsBy = new Map(rules.items.map(({ rule }) => [rule.id, metricsOf(rule.signal)]));
    const own = found.filter((alert) => !isExplained(alert));
    this.alerts = spansOf(own);
    this.lines?.draw(own.filter(({ state }) => state !== "ended"));
    this.page.markAll();
  }

  /** Those whose rule is about what this chart shows. */
  alertsOf({ rows }) {
    return this.alerts.filter(({ rule }) => rows.some(({ key }) => this.metricsBy.get(rule)?.has(key)));
  }

  mark(events) {
    this.marks = events.map(({ at, severity }) => ({ at, kind: severity }));
    this.page.markAll();
  }

  build() {
    const { node, holds, place } = this.page;
    this.lines = new AlertLines();
    this.tasks = new TaskLines();
    this.events = new EventList("No recent events.");
    this.state = make("p", { class: "drawer-state", role: "status" });
    const acts = place.kind === "node" ? [this.state, holdLine(holds, node.id, node.host)] : [];
    this.facts = new Facts();
    this.topology = make("div", {});
    this.mps = new NodeMps(node?.id);
    this.quotas = new QuotaPanel("node");
    const ofNode = place.kind === "node" ? [make("h3", {}, "Links between GPUs"), this.topology, make("h3", {}, "Quotas"), this.quotas.root, make("h3", {}, "MPS"), this.mps.root, make("h3", {}, "Agent"), this.facts.root] : [];
    this.root.replaceChildren(...acts, this.lines.root, this.tasks.title, this.tasks.list, make("h3", {}, "Events"), this.events.root, ...ofNode);
  }

  async drawMany() {
    if (this.tasks === undefined) this.build();
    const { node, place, gpus } = this.page;
    const panels = place.kind === "node" ? this.drawNode(node, gpus) : null;
    if (performance.now() - this.seldomAt < SELDOM_MS) return;
    this.seldomAt = performance.now();
    await Promise.allSettled([this.drawTasks(), this.drawEvents(), panels]); // the banner says it
  }

  drawNode(node, gpus) {
    const words = refusedWords(node) ?? NODE_WORDS[node.state] ?? node.state;
    say(this.state, node.last_heard_at === null ? words : `${words}, last data ${age(Date.now() / 1000 - node.last_heard_at)} ago`);
    this.state.className = `drawer-state ${node.state === "live" ? "ok" : node.state === "silent" ? "offline" : "stale"}`;
    this.facts.draw(nodeFacts(node));
    drawTopology(this.topology, node.links ?? [], gpus);
    return Promise.allSettled([this.mps.refresh(node.id), this.quotas.refresh(node.id)]);
  }

  async drawTasks() {
    const { place, gpus, node } = this.page;
    if (place.kind === "node") {
      const found = await look(`tasks?node=${encodeURIComponent(node.id)}&limit=${MOST_TASKS}&sort=mem_used_bytes&order=desc`);
      this.tasks.draw(found.items, { count: found.total });
      const idle = idleOf(gpus);
      this.idleLine.draw(idle, found.items, gpus.length > 1);
      this.page.markIdle(idle);
      return;
    }
    const ids = [...new Set(gpus.flatMap((gpu) => gpu.tasks))];
    this.tasks.draw(await tasksOf({ tasks: ids }), { count: ids.length });
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
