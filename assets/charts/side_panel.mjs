// The panel beside the timelines and, for a node, the line above them with its state and actions. One GPU: all that its
// drawer says. A node, or several GPUs: who works there, what happened, how the boards reach each other, and the agent.

/** @import Timelines from "./timelines.mjs" */

import { AlertLines } from "../alerts/alert_lines.mjs";
import { LATE_MS, get, getEvents } from "../parts/api.mjs";
import { byId, make, say } from "../parts/dom.mjs";
import { metricsOf } from "./chart_plan.mjs";
import { idleOf, IdleLine } from "../fleet/idle_gpus.mjs";
import { JobsHere } from "./jobs_here.mjs";
import { EventList } from "../live/event_lines.mjs";
import { alertsOf, spansOf } from "../alerts/firing.mjs";
import { age, clock } from "../parts/format.mjs";
import { GpuDetails } from "../fleet/gpu_details.mjs";
import { MachinePanels, placeOf } from "../reading/machine_panels.mjs";
import { MOST_TASKS, tasksOf } from "../tasks/task_lines.mjs";

const MOST_EVENTS = 30;
const SELDOM_MS = 5_000;
const BACK_S = 3_700; // as far as timelines reach
/** @type {Record<string, string>} */
const NODE_WORDS = {
  live: "Live",
  suspect: "No data for a moment",
  silent: "Silent: current state unknown",
};

export class MachineSide {
  /** @type {ChartMark[]} */
  marks = [];
  /** @type {AlertSpan[]} */
  alerts = [];
  /** @type {Hub.AlertView[]} */
  alertViews = [];
  /** @type {Map<string, Set<string>>} */
  metricsBy = new Map();
  /** @type {GpuDetails | undefined} */
  details;
  /** @type {{ lines: AlertLines, jobs: JobsHere, events: EventList } | null} */
  parts = null;

  /**
   * @param {Timelines} page
   * @param {HTMLElement} root
   */
  constructor(page, root) {
    this.page = page;
    this.root = root;
    this.seldomAt = -Infinity;
    this.alertsAt = -Infinity;
    this.panels = new MachinePanels("lines", page.root, page.live);

    this.idleLine = new IdleLine();
    byId("lines-idle").append(this.idleLine.root);
  }

  async draw() {
    await Promise.allSettled([
      this.lookAtAlerts(),
      this.page.place.kind === "gpu" ? this.drawGpu() : this.drawMany(),
    ]);
  }

  async drawGpu() {
    const [gpu] = this.page.gpus;
    const details = this.details ?? this.makeDetails();
    this.details = details;
    if (details.uuid !== gpu.uuid) details.start(gpu.uuid);
    await details.refresh();
    await this.panels.refresh();
  }

  makeDetails() {
    const details = new GpuDetails(this.root, this.page.book, this.panels, {
      nameOf: () => null,
      partsOf: () => 0,
      isOffline: () => false,
      idleLine: this.idleLine,
    });
    details.addEventListener("events", ({ detail }) => this.mark(detail));
    return details;
  }

  /**
   * Reads the alerts of the time bar's whole range.
   * @type {(isNow?: boolean) => Promise<void>}
   */
  async lookAtAlerts(isNow = false) {
    if (this.page.gpus.length === 0 || (!isNow && performance.now() - this.alertsAt < SELDOM_MS))
      return;
    this.alertsAt = performance.now() + LATE_MS; // not again before the hub has answered
    const now = Date.now() / 1000;
    /** @type {[Hub.AlertView[] | null, Hub.RuleList | null]} */
    const [alerts, rules] = await Promise.all([
      alertsOf(
        this.page.gpus.map(({ uuid }) => uuid),
        Math.min(now - BACK_S, this.page.past?.bar.start ?? now),
        now,
      ),
      get("rules"),
    ]).catch(() => [null, null]);
    this.alertsAt = performance.now();
    if (alerts === null || rules === null) return; // the banner shows the connection to the hub
    this.metricsBy = new Map(rules.items.map(({ rule }) => [rule.id, metricsOf(rule.signal)]));
    this.alertViews = alerts;
    this.alerts = /** @type {any} */ (spansOf(alerts));
    this.page.past?.mark(alerts);
    this.parts?.lines.draw(alerts.filter(({ state }) => state !== "ended"));
    this.page.redrawAll();
  }

  /**
   * Returns the alerts to mark in a chart: those whose rule is about a metric of it.
   * @type {(plan: ChartPlan) => AlertSpan[]}
   */
  alertsOf({ rows }) {
    return this.alerts.filter(
      ({ rule, isSilenced: isKnown }) =>
        !isKnown && rows.some(({ key }) => this.metricsBy.get(rule)?.has(key)),
    );
  }

  /** @type {(events: Hub.EventView[]) => void} */
  mark(events) {
    this.marks = events.map(({ at, severity }) => ({ at, kind: severity }));
    this.page.redrawAll();
  }

  build() {
    const { node } = this.page;
    const parts = {
      lines: new AlertLines(),
      jobs: new JobsHere(),
      events: new EventList("No recent events."),
    };
    this.parts = parts;
    const jobs = [
      make("h3", {}, node !== null ? "Jobs on this node" : "Jobs on these GPUs"),
      parts.jobs.root,
    ];
    const events = [make("h3", {}, "Events"), parts.events.root];
    if (node === null) this.root.replaceChildren(...jobs, parts.lines.root, ...events);
    else this.root.replaceChildren(...this.buildNode(node, parts.lines.root, jobs, events));
  }

  /**
   * Arranges the parts: the most important first, what rarely changes last.
   * @type {(node: Hub.NodeView, lines: HTMLElement, jobs: HTMLElement[], events: HTMLElement[]) =>
   *   HTMLElement[]}
   */
  buildNode(node, lines, jobs, events) {
    this.panels.start({ node: node.id });
    byId("lines-acts").setAttribute("aria-busy", "true");
    return [
      ...jobs,
      lines,
      ...["now", "mps", "quotas", "health"].map(placeOf),
      ...events,
      ...["host", "links", "node"].map(placeOf),
    ];
  }

  async drawMany() {
    if (this.parts === null) this.build();
    const { node } = this.page;
    const panels = node === null ? null : this.drawNode(node);
    if (performance.now() - this.seldomAt < SELDOM_MS) return;
    this.seldomAt = performance.now();
    await Promise.allSettled([this.drawTasks(), this.drawEvents(), panels]); // the banner says it
  }

  /** @type {(node: Hub.NodeView) => Promise<void>} */
  drawNode(node) {
    const { refused } = node;
    const { word, why } = node.health ?? {
      word: node.state,
      why: NODE_WORDS[node.state] ?? node.state,
    };
    const words = (
      refused ? `Refused until ${clock(refused.until)}: ${refused.why}` : why
    ).replaceAll("\x60", "");
    const isRead = word === "healthy" || word === "maintenance"; // else what came last is no data of its GPUs
    const state = byId("lines-state");
    say(
      state,
      node.last_heard_at === null || !(isRead || word === "silent" || word === "suspect")
        ? words
        : `${words}, last data ${age(Date.now() / 1000 - node.last_heard_at)} ago`,
    );
    state.className = `drawer-state ${isRead ? "ok" : word === "silent" ? "offline" : "stale"}`;
    return this.drawActs();
  }

  /** Shown once it is known what one may do: nothing there moves. */
  async drawActs() {
    await this.panels.refresh();
    byId("lines-acts").removeAttribute("aria-busy");
  }

  async drawTasks() {
    const { gpus, node } = this.page;
    if (node !== null) {
      const answer = await get(
        `tasks?node=${encodeURIComponent(node.id)}&limit=${MOST_TASKS}&sort=mem_used_bytes&order=desc`,
      );
      this.drawJobs(answer.items, answer.total);
      const idle = idleOf(gpus);
      this.idleLine.draw(idle, answer.items, gpus.length > 1);
      return;
    }
    const ids = [...new Set(gpus.flatMap((gpu) => gpu.tasks))];
    this.drawJobs(await tasksOf({ tasks: ids }), ids.length);
  }

  /** @type {(tasks: Hub.TaskView[], count: number) => void} */
  drawJobs(tasks, count) {
    const { gpus, labels } = this.page;
    this.parts?.jobs.draw(tasks, {
      count,
      gpus,
      nameOf: (at) => {
        const label = labels.get(gpus[at].uuid);
        return label?.short ?? label?.label ?? gpus[at].place;
      },
    });
    /** @type {Map<string, string>} */
    const owners = new Map();
    for (const { uuid } of gpus)
      if (ownersAt(uuid, tasks) !== "") owners.set(uuid, ownersAt(uuid, tasks));
    this.page.nameOwners(owners);
  }

  async drawEvents() {
    const { gpus, node } = this.page;
    const limit = String(MOST_EVENTS);
    /** @type {Record<string, string>[]} */
    const queries =
      node !== null ? [{ node: node.id, limit }] : gpus.map(({ uuid }) => ({ gpu: uuid, limit }));
    const answers = await Promise.all(queries.map(getEvents));
    const items = answers
      .flatMap((answer) => answer.items)
      .sort((one, other) => other.at - one.at)
      .slice(0, MOST_EVENTS);
    this.parts?.events.draw(items);
    this.mark(
      items.filter(({ severity, kind }) => severity !== "info" || kind.startsWith("task_")),
    );
  }
}

/**
 * "ana" or "ana, bo", of whose tasks use the GPU.
 * @type {(uuid: string, tasks: Hub.TaskView[]) => string}
 */
const ownersAt = (uuid, tasks) =>
  [
    ...new Set(
      tasks
        .filter(({ gpus }) => gpus.some((use) => use.uuid === uuid))
        .map(({ user }) => user ?? "owner unknown"),
    ),
  ].join(", ");
