// Details of a GPU now, in the drawer and beside its timelines. Refreshed in place, never rebuilt under
// a reader.

/** @import { MachinePanels } from "../reading/machine_panels.mjs" */

import { idleOf, IdleLine } from "./idle_gpus.mjs";
import { placeOf } from "../reading/machine_panels.mjs";
import { AlertLines } from "../alerts/alert_lines.mjs";
import { listed } from "../alerts/firing.mjs";
import { ApiError, get, getEvents, single } from "../parts/api.mjs";
import { Teller, make, say, sayOrHide, within } from "../parts/dom.mjs";
import { Metrics } from "./gpu_metrics.mjs";
import { EventList } from "../live/event_lines.mjs";
import { sentence } from "../parts/dialog.mjs";
import { age, capital, secondsSince, untilWords } from "../parts/format.mjs";
import { stateWords } from "./gpu_words.mjs";
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
  seldomAt = -Infinity;

  /**
   * `around`: what the page knows of the others: nameOf(uuid), partsOf(uuid), isOffline(uuid); and
   * its own place for what is said of an idle GPU, if it has one.
   * @param {HTMLElement} body
   * @param {MetricBook} book
   * @param {MachinePanels} panels
   * @param {Around} around
   */
  constructor(body, book, panels, around) {
    super();
    this.body = body;
    this.book = book;
    this.panels = panels;
    this.around = around;
    this.idleLine = around.idleLine ?? new IdleLine();
  }

  /** @type {(uuid: string | null) => void} */
  start(uuid) {
    this.uuid = uuid;
    this.parts = null;
    this.seldomAt = -Infinity;
    this.panels.start(uuid === null ? {} : { gpu: uuid });
    if (uuid !== null)
      this.body.replaceChildren(make("p", { class: "drawer-state", role: "status" }, "Loading …"));
  }

  /**
   * Builds all parts at once, when everything has come, so that nothing jumps.
   * @type {(gpu: Hub.GpuView) => GpuParts}
   */
  build(gpu) {
    explainedList(this.body);
    const parts = {
      alerts: new AlertLines(),
      tasks: /** @type {any} */ (new TaskLines()),
      metrics: new Metrics(this.book),
      events: new EventList("No recent events."),
      leases: make("p", { class: "drawer-lease" }),
    };
    this.parts = parts;
    const { alerts, tasks, metrics, events, leases } = parts;
    metrics.append("links", placeOf("peers"));
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
      ...["service", "mig", "limits"].map(placeOf),
      ...metrics.elements,
      make("h3", {}, "Events"),
      events.root,
      ...["quotas", "board"].map(placeOf),
      make("h3", {}, "Node"),
      ...["hold", "node"].map(placeOf),
    );
    this.panels.draw();
    return parts;
  }

  /**
   * Builds the parts of another site's GPU: its hub's data and a link. Nothing here acts on it.
   * @type {(gpu: Hub.GpuView, parts: GpuParts) => void}
   */
  buildViewed(gpu, { metrics }) {
    this.body.append(
      make(
        "p",
        { class: "drawer-site" },
        make("a", { class: "button small", href: gpu.link }, `Open at ${gpu.site}`),
        ` Tasks, limits and actions of this GPU are on the page of ${gpu.site}.`,
      ),
      ...metrics.elements,
      placeOf("board"),
      make("h3", {}, "Node"),
      placeOf("node"),
    );
    this.panels.draw();
  }

  async refresh() {
    const { uuid } = this;
    if (uuid === null) return;
    const panels = this.panels.refresh();
    try {
      const gpu = await single("gpus", uuid, get);
      const [tasks, seldom] = await Promise.all([
        tasksOf(gpu),
        this.seldom(gpu),
        this.parts === null ? panels : null, // what comes after the others would move them
      ]);
      // The second of two at once comes without what is due seldom, and must not build without it.
      if (uuid === this.uuid && (this.parts !== null || seldom !== null))
        this.draw(gpu, tasks, seldom);
    } catch (error) {
      if (uuid === this.uuid) this.fail(error);
    }
  }

  /**
   * {events, alerts, leases}, each null where it did not come; null: not due.
   * @type {(gpu: Hub.GpuView) => Promise<SeldomFacts | null>}
   */
  async seldom({ uuid, node }) {
    if (performance.now() - this.seldomAt < SELDOM_MS) return null;
    this.seldomAt = performance.now();
    const [events, alerts, leases] = await Promise.all([
      getEvents({ gpu: uuid, node, limit: String(MOST_EVENTS) }).catch(() => null),
      get(`alerts?gpus=${encodeURIComponent(uuid)}`).catch(() => null),
      get(`leases?gpu=${encodeURIComponent(uuid)}`).catch(() => null),
    ]);
    return {
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
    const { tasks: lines, ...parts } = this.parts ?? this.build(gpu);
    const { alerts, metrics, events, leases } = parts;
    this.tell("named", gpu);
    // That its node is silent the API says of the node; the picture says it of the GPU.
    const state = this.around.isOffline(gpu.uuid) ? "offline" : gpu.state;
    this.setState(stateLine(gpu, state, this.book.absence), state);
    this.idleLine.draw(idle, tasks);
    metrics.draw(gpu, idle.length > 0);
    settleList(this.body);
    if (gpu.link) return;
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
