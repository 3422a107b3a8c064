// Details of a GPU now, in the drawer and beside its timelines. Refreshed in place, never rebuilt under
// a reader.

/** @import { Holds } from "../actions/holds.mjs" */

import { metricOf } from "../parts/metric_catalogue.mjs";
import { idleOf, IdleLine } from "./idle_gpus.mjs";
import { AlertLines } from "../alerts/alert_lines.mjs";
import { listed } from "../alerts/firing.mjs";
import { ApiError, get, getEvents, several, single } from "../parts/api.mjs";
import { Teller, make, say, sayOrHide, within } from "../parts/dom.mjs";
import { Facts, boardFacts, nodeFacts, peerFacts } from "./gpu_facts.mjs";
import { Metrics } from "./gpu_metrics.mjs";
import { EventList } from "../live/event_lines.mjs";
import { sentence } from "../parts/dialog.mjs";
import { age, capital, secondsSince, untilWords } from "../parts/format.mjs";
import { holdLine } from "../actions/holds.mjs";
import { stateWords, valueWords } from "./gpu_words.mjs";
import { GpuLimits } from "../actions/limits_panel.mjs";
import { MigPanel } from "../actions/mig_panel.mjs";
import { ServicePanel } from "../actions/service_panel.mjs";
import { QuotaPanel } from "../quotas/quota_panel.mjs";
import { TaskLines, tasksOf } from "../tasks/task_lines.mjs";
import { explainedList, settleList } from "../parts/tips.mjs";

const MOST_EVENTS = 10;
// Of the node and of what happened: once in a while is enough.
const SELDOM_MS = 5_000;

/**
 * Sends `named` with the GPU, or null where nobody knows it, and `events` with what happened to it.
 * @extends {Teller<{ named: Hub.GpuView | null, events: Hub.EventView[] }>}
 */
export class GpuDetails extends Teller {
  /** @type {string | null} */
  uuid = null;
  /** @type {GpuParts | null} */
  parts = null;
  /** @type {Promise<unknown> | undefined} */
  panels;
  /** @type {string[]} */
  taskIds = [];
  advice = "";
  seldomAt = -Infinity;

  /**
   * `around`: what the page knows of the others: nameOf(uuid), partsOf(uuid), isOffline(uuid); and
   * its own place for what is said of an idle GPU, if it has one.
   * @param {HTMLElement} body
   * @param {MetricBook} book
   * @param {Holds} holds
   * @param {Around} around
   */
  constructor(body, book, holds, around) {
    super();
    this.body = body;
    this.book = book;
    this.holds = holds;
    this.around = around;
    this.idleLine = around.idleLine ?? new IdleLine();
  }

  /** @type {(uuid: string | null) => void} */
  start(uuid) {
    this.uuid = uuid;
    this.parts = null;
    this.seldomAt = -Infinity;
    if (uuid !== null)
      this.body.replaceChildren(make("p", { class: "drawer-state", role: "status" }, "Loading …"));
  }

  /**
   * Builds all parts at once, when everything has come, so that nothing jumps.
   * @type {(gpu: Hub.GpuView) => GpuParts}
   */
  build(gpu) {
    explainedList(this.body);
    const uuid = gpu.facts.parent_uuid ?? gpu.uuid;
    const parts = {
      alerts: new AlertLines(),
      tasks: /** @type {any} */ (new TaskLines()),
      metrics: new Metrics(this.book),
      peers: new Facts(),
      board: new Facts(),
      node: new Facts(),
      events: new EventList("No recent events."),
      limits: new GpuLimits(gpu),
      mig: new MigPanel(gpu),
      service: new ServicePanel(
        gpu.node,
        uuid,
        () => this.taskIds,
        () => this.advice,
      ),
      quotas: /** @type {any} */ (new QuotaPanel("GPU")),
      leases: make("p", { class: "drawer-lease" }),
    };
    this.parts = parts;
    const {
      alerts,
      tasks,
      metrics,
      peers,
      board,
      node,
      events,
      limits,
      mig,
      service,
      quotas,
      leases,
    } = parts;
    metrics.append("links", peers.root);
    if (gpu.link) {
      this.buildViewed(gpu, parts);
      return parts;
    }
    this.body.append(
      ...(this.around.idleLine ? [] : [this.idleLine.root]),
      leases,
      alerts.root,
      tasks.title,
      tasks.list,
      make("h3", {}, "Service"),
      service.root,
      mig.title,
      mig.root,
      make("h3", {}, "Limits"),
      limits.root,
      ...metrics.elements,
      make("h3", {}, "Events"),
      events.root,
      make("h3", {}, "Quotas"),
      quotas.root,
      make("h3", {}, "Board"),
      board.root,
      make("h3", {}, "Node"),
      holdLine(this.holds, gpu.node, gpu.host),
      node.root,
    );
    return parts;
  }

  /**
   * Builds the parts of another site's GPU: its hub's data and a link. Nothing here acts on it.
   * @type {(gpu: Hub.GpuView, parts: GpuParts) => void}
   */
  buildViewed(gpu, { metrics, board, node }) {
    this.body.append(
      make(
        "p",
        { class: "drawer-site" },
        make("a", { class: "button small", href: gpu.link }, `Open at ${gpu.site}`),
        ` Tasks, limits and actions of this GPU are on the page of ${gpu.site}.`,
      ),
      ...metrics.elements,
      make("h3", {}, "Board"),
      board.root,
      make("h3", {}, "Node"),
      node.root,
    );
  }

  async refresh() {
    const { uuid } = this;
    if (uuid === null) return;
    try {
      const gpu = await single("gpus", uuid, get);
      const [tasks, seldom] = await Promise.all([tasksOf(gpu), this.seldom(gpu)]);
      // The second of two at once comes without what is due seldom, and must not build without it.
      if (uuid === this.uuid && (this.parts !== null || seldom !== null))
        this.draw(gpu, tasks, seldom);
    } catch (error) {
      if (uuid === this.uuid) this.fail(error);
    }
  }

  /**
   * {node, events, alerts, leases}, each null where it did not come; null: not due.
   * @type {(gpu: Hub.GpuView) => Promise<SeldomFacts | null>}
   */
  async seldom({ uuid, node }) {
    if (performance.now() - this.seldomAt < SELDOM_MS) return null;
    this.seldomAt = performance.now();
    const [nodes, events, alerts, leases] = await Promise.all([
      several("nodes", [node], get).catch(() => []),
      getEvents({ gpu: uuid, node, limit: String(MOST_EVENTS) }).catch(() => null),
      get(`alerts?gpus=${encodeURIComponent(uuid)}`).catch(() => null),
      get(`leases?gpu=${encodeURIComponent(uuid)}`).catch(() => null),
    ]);
    return {
      node: nodes[0] ?? null,
      events: events?.items ?? null,
      alerts: alerts?.items ?? null,
      leases: leases?.items ?? null,
    };
  }

  /** @type {(error: unknown) => void} */
  fail(error) {
    const isGone = error instanceof ApiError && error.status === 404;
    const words = isGone
      ? "No node reports this GPU."
      : "The hub is not responding; these values are no longer live.";
    this.setState(words, isGone ? "lost" : "stale");
    if (isGone) this.tell("named", null);
  }

  /** @type {(gpu: Hub.GpuView, tasks: Hub.TaskView[], seldom: SeldomFacts | null) => void} */
  draw(gpu, tasks, seldom) {
    const idle = idleOf([gpu]);
    const {
      alerts,
      tasks: lines,
      metrics,
      peers,
      board,
      node,
      events,
      limits,
      mig,
      service,
      quotas,
      leases,
    } = this.parts ?? this.build(gpu);
    this.tell("named", gpu);
    // That its node is silent the API says of the node; the picture says it of the GPU.
    const state = this.around.isOffline(gpu.uuid) ? "offline" : gpu.state;
    this.setState(stateLine(gpu, state, this.book.absence), state);
    this.idleLine.draw(idle, tasks);
    metrics.draw(gpu, idle.length > 0);
    settleList(this.body);
    board.draw(boardFacts(gpu));
    if (seldom?.node) node.draw(nodeFacts(seldom.node));
    if (gpu.link) return;
    this.taskIds = tasks.map(({ id }) => id);
    this.advice =
      (gpu.values.recovery_action ?? 0) === 0
        ? ""
        : valueWords(gpu, metricOf(this.book, "recovery_action"), this.book).text;
    this.panels = Promise.allSettled([
      service.refresh(gpu.node),
      limits.refresh(gpu.node),
      mig.refresh(gpu.node),
      quotas.refresh(gpu.node, gpu.uuid),
    ]);
    lines.draw(tasks, {
      count: (gpu.tasks ?? []).length,
      uuid: gpu.uuid,
      none: this.noTask(gpu.uuid),
    });
    if (seldom?.leases) sayOrHide(leases, leaseLine(seldom.leases, tasks));
    if (seldom?.alerts) alerts.draw(listed(seldom.alerts));
    if (seldom?.events) {
      events.draw(seldom.events);
      this.tell("events", seldom.events);
    }
    if (!seldom?.node) return;
    peers.draw(
      peerFacts(gpu.uuid, seldom.node.links, (uuid) => `To ${this.around.nameOf(uuid) ?? uuid}`),
    );
  }

  /** @type {(uuid: string) => string} */
  noTask(uuid) {
    const parts = this.around.partsOf(uuid);
    return parts > 0 ? `Split by MIG: tasks run on its ${parts} instances` : "No task";
  }

  /** @type {(words: string, state: string) => void} */
  setState(words, state) {
    const line = within(this.body, ".drawer-state");
    say(line, words);
    line.className = `drawer-state ${state}`;
  }
}

/**
 * Returns who leases it until when, and who else uses it.
 * @type {(leases: Hub.LeaseView[], tasks: Hub.TaskView[]) => string}
 */
function leaseLine(leases, tasks) {
  const outsiders = [...new Set(tasks.map(({ user }) => user ?? "an unknown user"))].filter(
    (user) => leases.every(({ owner }) => owner !== user),
  );
  return (
    leases
      .map((lease) =>
        sentence(
          `${lease.share_pct < 100 ? `${Math.round(lease.share_pct)} % of the GPU ` : ""}leased to ${lease.owner} ${lease.until * 1000 > Date.now() ? "until" : "; overdue since"} ${untilWords(lease.until)}`.replace(
            " ;",
            ";",
          ),
        ),
      )
      .join(" ") +
    (leases.length > 0 && outsiders.length > 0
      ? ` Used by ${outsiders.join(", ")} without a lease.`
      : "")
  );
}

/** @type {(gpu: Hub.GpuView, state: string, absence: Record<string, string>) => string} */
function stateLine(gpu, state, absence) {
  const old = `read ${age(gpu.age_s ?? secondsSince(gpu.sampled_at))} ago`;
  if (state === "ok") return `Live, ${old}`;
  const last = gpu.sampled_at === null ? "never read" : `last ${old}`;
  return `${capital(stateWords(state))}: ${absence[state] ?? "node silent"}; ${last}`;
}
