// Everything known of one GPU now, in the drawer and beside its timelines. Refreshed in place, never
// rebuilt under a reader.

import { idleOf, IdleLine } from "./idle_gpus.mjs";
import { AlertLines } from "../alerts/alert_lines.mjs";
import { listed } from "../alerts/firing.mjs";
import { ApiError, get, getEvents, single } from "../parts/api.mjs";
import { Teller, make, say, sayOrHide } from "../parts/dom.mjs";
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

/** Sends `named` with the GPU, or null where nobody knows it, and `events` with what happened to it. */
export class GpuDetails extends Teller {
  /** `around`: what the page knows of the others: nameOf(uuid), partsOf(uuid), isOffline(uuid); and
   * its own place for what is said of an idle GPU, if it has one. */
  constructor(body, book, holds, around) {
    super();
    Object.assign(this, { body, book, holds, around, uuid: null, idleLine: around.idleLine ?? new IdleLine() });
  }

  start(uuid) {
    Object.assign(this, { uuid, isBuilt: false, seldomAt: -Infinity });
    if (uuid !== null) this.body.replaceChildren(make("p", { class: "drawer-state", role: "status" }, "Loading …"));
  }

  /** All at once and only when everything is there: what came before does not jump for what comes. */
  build(gpu) {
    this.isBuilt = true;
    explainedList(this.body);
    this.alerts = new AlertLines();
    this.tasks = new TaskLines();
    this.metrics = new Metrics(this.book);
    [this.peers, this.board, this.node] = [new Facts(), new Facts(), new Facts()];
    this.metrics.append("links", this.peers.root);
    this.events = new EventList("No recent events.");
    this.limits = new GpuLimits(gpu);
    this.mig = new MigPanel(gpu);
    this.service = new ServicePanel(gpu.node, gpu.facts.parent_uuid ?? gpu.uuid, () => this.taskIds, () => this.advice);
    this.quotas = new QuotaPanel("GPU");
    this.leases = make("p", { class: "drawer-lease" });
    if (gpu.link !== undefined) { this.buildViewed(gpu); return; }
    this.body.append(...(this.around.idleLine ? [] : [this.idleLine.root]), this.leases, this.alerts.root, this.tasks.title, this.tasks.list, make("h3", {}, "Service"), this.service.root, this.mig.title, this.mig.root, make("h3", {}, "Limits"), this.limits.root,
      ...this.metrics.elements, make("h3", {}, "Events"), this.events.root, make("h3", {}, "Quotas"), this.quotas.root, make("h3", {}, "Board"), this.board.root, make("h3", {}, "Node"), holdLine(this.holds, gpu.node, gpu.host), this.node.root);
  }

  /** Of another site: what its hub says, and the way there. Nothing here acts on it. */
  buildViewed(gpu) {
    this.body.append(
      make("p", { class: "drawer-site" }, make("a", { class: "button small", href: gpu.link }, `Open at ${gpu.site}`), ` Tasks, limits and actions of this GPU are on the page of ${gpu.site}.`),
      ...this.metrics.elements, make("h3", {}, "Board"), this.board.root, make("h3", {}, "Node"), this.node.root);
  }

  async refresh() {
    const { uuid } = this;
    if (uuid === null) return;
    try {
      const gpu = await single("gpus", uuid, get);
      const [tasks, seldom] = await Promise.all([tasksOf(gpu), this.seldom(gpu)]);
      // The second of two at once comes without what is due seldom, and must not build without it.
      if (uuid === this.uuid && (this.isBuilt || seldom !== null)) this.draw(gpu, tasks, seldom);
    } catch (error) {
      if (uuid === this.uuid) this.fail(error);
    }
  }

  /** {node, events, alerts, leases}, each null where it did not come; null: not due. */
  async seldom({ uuid, node }) {
    if (performance.now() - this.seldomAt < SELDOM_MS) return null;
    this.seldomAt = performance.now();
    const asked = [single("nodes", node, get), getEvents({ gpu: uuid, node, limit: MOST_EVENTS }), get(`alerts?gpus=${encodeURIComponent(uuid)}`), get(`leases?gpu=${encodeURIComponent(uuid)}`)];
    const [found, events, alerts, leases] = await Promise.all(asked.map((one) => one.catch(() => null)));
    return { node: found, events: events?.items ?? null, alerts: alerts?.items ?? null, leases: leases?.items ?? null };
  }

  fail(error) {
    const isGone = error instanceof ApiError && error.status === 404;
    const words = isGone ? "No node reports this GPU." : "The hub is not responding; these values are no longer live.";
    this.setState(words, isGone ? "lost" : "stale");
    if (isGone) this.tell("named", null);
  }

  draw(gpu, tasks, seldom) {
    const idle = idleOf([gpu]);
    if (!this.isBuilt) this.build(gpu);
    this.tell("named", gpu);
    // That its node is silent the API says of the node; the picture says it of the GPU.
    const state = this.around.isOffline(gpu.uuid) ? "offline" : gpu.state;
    this.setState(stateLine(gpu, state, this.book.absence), state);
    this.idleLine.draw(idle, tasks);
    this.metrics.draw(gpu, idle.length > 0);
    settleList(this.body);
    this.board.draw(boardFacts(gpu));
    if (seldom?.node) this.node.draw(nodeFacts(seldom.node));
    if (gpu.link !== undefined) return;
    this.taskIds = tasks.map(({ id }) => id);
    this.advice = (gpu.values.recovery_action ?? 0) === 0 ? "" : valueWords(gpu, this.book.metrics.get("recovery_action"), this.book).text;
    this.panels = Promise.allSettled([this.service.refresh(gpu.node), this.limits.refresh(gpu.node), this.mig.refresh(gpu.node), this.quotas.refresh(gpu.node, gpu.uuid)]);
    this.tasks.draw(tasks, { count: (gpu.tasks ?? []).length, uuid: gpu.uuid, none: this.noTask(gpu.uuid) });
    if (seldom?.leases) sayOrHide(this.leases, leaseLine(seldom.leases, tasks));
    if (seldom?.alerts) this.alerts.draw(listed(seldom.alerts));
    if (seldom?.events) { this.events.draw(seldom.events); this.tell("events", seldom.events); }
    if (!seldom?.node) return;
    this.peers.draw(peerFacts(gpu.uuid, seldom.node.links, (uuid) => `To ${this.around.nameOf(uuid) ?? uuid}`));
  }

  noTask(uuid) {
    const parts = this.around.partsOf(uuid);
    return parts > 0 ? `Split by MIG: tasks run on its ${parts} instances` : "No task";
  }

  setState(words, state) {
    const line = this.body.querySelector(".drawer-state");
    say(line, words);
    line.className = `drawer-state ${state}`;
  }
}

/** Who holds it until when, and who else is on it. */
function leaseLine(leases, tasks) {
  const others = [...new Set(tasks.map(({ user }) => user ?? "an unknown user"))].filter((user) => leases.every(({ owner }) => owner !== user));
  return leases.map((lease) => sentence(`${lease.share_pct < 100 ? `${Math.round(lease.share_pct)} % of the GPU ` : ""}leased to ${lease.owner} ${lease.until * 1000 > Date.now() ? "until" : "; overdue since"} ${untilWords(lease.until)}`.replace(" ;", ";"))).join(" ")
    + (leases.length > 0 && others.length > 0 ? ` Used by ${others.join(", ")} without a lease.` : "");
}

function stateLine(gpu, state, absence) {
  const old = `read ${age(gpu.age_s ?? secondsSince(gpu.sampled_at))} ago`;
  if (state === "ok") return `Live, ${old}`;
  const last = gpu.sampled_at === null ? "never read" : `last ${old}`;
  return `${capital(stateWords(state))}: ${absence[state] ?? "node silent"}; ${last}`;
}
