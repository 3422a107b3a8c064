// The Pool page: what is free, who waits, who holds what until when, and the week ahead.

import { look, lookAtAll } from "../parts/api.mjs";
import { copyable } from "../parts/dialog.mjs";
import { byId, isShortcut, make, redraw, say, settle, show } from "../parts/dom.mjs";
import { amount, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { nowS } from "../parts/time_ranges.mjs";
import { askForGpus, waitsWords } from "./lease_acts.mjs";
import { gpusOf, isReserved } from "./pool_model.mjs";
import { PoolTables } from "./pool_tables.mjs";
import { Strategy } from "./strategy.mjs";
import { Week } from "./week.mjs";

const EVERY_MS = 5_000;
const NODES_EVERY_MS = 30_000;
// Of what comes by the socket much may come at once.
const SOON_MS = 1_000;

export default class PoolPage extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("pool-problem") });
    Object.assign(this, { root, nodes: [], gpus: new Map(), leases: [], claims: [], nodesAt: -Infinity, lookedAt: -Infinity, soon: null });
    for (const name of ["lease", "claim"]) live.addEventListener(name, () => this.lookSoon());
    byId("pool-ask").addEventListener("click", () => askForGpus(this));
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.begin();
  }

  async begin() {
    await this.meet();
    this.tables = new PoolTables(this);
    this.week = new Week(this);
    this.strategy = new Strategy(this);
    this.look();
  }

  lookSoon() {
    this.soon ??= setTimeout(() => { this.soon = null; this.look(); }, Math.max(0, this.lookedAt + SOON_MS - performance.now()));
  }

  async ask() {
    this.lookedAt = performance.now();
    const isDue = this.lookedAt - this.nodesAt >= NODES_EVERY_MS;
    const [pool, leases, claims, nodes] = await Promise.all([look("pool"), lookAtAll("leases"), lookAtAll("claims"), isDue ? lookAtAll("pool/nodes") : this.nodes]);
    if (isDue) this.nodesAt = this.lookedAt;
    return { pool, leases, claims, nodes };
  }

  take({ pool, leases, claims, nodes }) {
    // A node that came since is asked for at the next look.
    if (pool.nodes !== nodes.length) this.nodesAt = -Infinity;
    if (nodes !== this.nodes) this.gpus = gpusOf(nodes);
    Object.assign(this, { pool, leases, claims, nodes });
    this.draw();
    settle(this.root);
  }

  draw() {
    const { pool } = this;
    if (pool === undefined) return;
    const isThere = pool.nodes > 0;
    show(byId("pool-there"), isThere);
    drawOff(pool);
    const free = pool.models.reduce((sum, one) => sum + one.free, 0);
    const all = pool.models.reduce((sum, one) => sum + one.gpus, 0);
    const reserved = this.claims.filter((claim) => isReserved(claim, nowS())).length;
    say(byId("pool-words"), !isThere ? "" : [`${amount(free)} of ${plural(all, "GPU")} free`, waitsWords(pool),
      reserved === 0 ? "" : plural(reserved, "reservation")].filter(Boolean).join(" · "));
    show(byId("pool-ask"), this.may("user") && pool.is_on && isThere);
    drawFree(pool);
    drawUnavailable(this.nodes);
    this.tables.draw(this);
    this.week.draw();
    this.strategy.draw(pool);
  }

  onKey(event) {
    if (!isShortcut(event)) return;
    if (event.key === "n" && !byId("pool-ask").hidden) { event.preventDefault(); askForGpus(this); }
    if (event.key === "/") { event.preventDefault(); this.tables?.find.focus(); }
    if (event.key === "[") this.week?.turn(-1);
    if (event.key === "]") this.week?.turn(1);
  }
}

/** Why there is nothing to be had, and what to do about it. */
function drawOff({ is_on: isOn, nodes }) {
  const place = byId("pool-off");
  show(place, !isOn || nodes === 0);
  redraw(place, [isOn, nodes === 0], () => (isOn ? [
    make("h2", {}, "No node is in the pool yet"),
    make("p", {}, "A node joins the pool when its agent has a socket for “gpudeck run”:"),
    copyable("gpudeck agent --pool-socket /run/gpudeck/pool.sock …", "the line"),
  ] : [
    make("h2", {}, "The pool is off"),
    make("p", {}, "The pool assigns GPUs before a task runs, for sites without a scheduler. Nothing changes until it is switched on, on the hub and on each node that joins:"),
    copyable("gpudeck hub --pool on …", "the line for the hub"), copyable("gpudeck agent --pool-socket /run/gpudeck/pool.sock …", "the line for a node"),
    make("p", {}, "Or by environment variables: GPUDECK_POOL=on, GPUDECK_POOL_SOCKET=/run/gpudeck/pool.sock."),
  ]));
}

function drawFree({ models }) {
  redraw(byId("pool-free"), models, () => models.map(({ model, gpus, free, leased, unavailable }) => {
    const part = (count, name) => (count === 0 ? null : make("i", { class: name, style: `flex-grow: ${count}` }));
    return make("li", {}, make("h3", { title: model }, model),
      make("p", { class: free === 0 ? "pool-figure none-free" : "pool-figure" }, make("strong", {}, amount(free)), ` of ${amount(gpus)} free`),
      make("div", { class: "pool-bar", "aria-hidden": "true" }, part(free, "is-free"), part(leased, "is-leased"), part(unavailable, "is-unavailable")),
      make("p", { class: "pool-rest" }, [`${amount(leased)} leased`, unavailable === 0 ? "" : `${amount(unavailable)} not in the pool`].filter(Boolean).join(" · ")));
  }));
}

function drawUnavailable(nodes) {
  const place = byId("pool-unavailable");
  const found = nodes.flatMap(({ host, gpus }) => gpus.filter(({ trouble }) => trouble !== "").map(({ place: number, trouble }) => [`${host} · GPU ${number}`, trouble]));
  show(place, found.length > 0);
  redraw(place, found, () => [
    make("summary", {}, `${plural(found.length, "GPU")} not in the pool`),
    make("ul", {}, ...found.slice(0, 100).map(([name, why]) => make("li", {}, make("strong", {}, name), `: ${why}`)))]);
}
