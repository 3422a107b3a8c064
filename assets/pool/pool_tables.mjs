// Who waits, what is reserved, and who holds what.

import { button, byId, factLines, make, say, show } from "../parts/dom.mjs";
import { sentence, tell } from "../parts/dialog.mjs";
import { age, amount, moment, secondsSince, untilWords, when } from "../parts/format.mjs";
import { Rows, parts, stacked } from "../parts/rows.mjs";
import { nowS } from "../parts/time_ranges.mjs";
import { extend, giveBack, withdraw } from "./lease_acts.mjs";
import { byHost, isReserved, leasedWords, textOf } from "./pool_model.mjs";

const [FIRST_ROWS, MOST_ROWS] = [10, 200];
const IDLE_LONG_S = 600;

export class PoolTables {
  constructor(page) {
    this.page = page;
    this.waiting = waitingRows(page);
    this.reserved = new Rows({
      label: "Reservations", key: ({ id }) => id, empty: "",
      columns: [
        { head: "Owner", draw: (cell, { owner }) => parts(cell, ["strong", "name", owner]) },
        { head: "Request", draw: (cell, claim) => stacked(cell, ["span", null, claim.asks], ["small", null, claim.hosts.join(", ") || "any node"]) },
        { head: "From", draw: (cell, claim) => stacked(cell, ["span", null, untilWords(claim.starts_at), moment(claim.starts_at)], ["small", null, `for ${age(claim.term_s)}`]) },
      ],
      actions: (claim) => claimActions(page, claim),
    });
    this.held = leaseRows(page);
    for (const name of ["waiting", "reserved", "held"]) byId(`pool-${name}`).append(this[name].root);
    this.find = make("input", { type: "search", class: "find", placeholder: "Find an owner, a node, a command", "aria-label": "Find an owner, a node or a command", autocomplete: "off", spellcheck: "false" });
    this.find.addEventListener("input", () => page.draw());
    byId("pool-find").append(this.find);
    this.more = { waiting: this.moreOf("waiting"), held: this.moreOf("held") };
  }

  /** What a table leaves out, and the way to it. */
  moreOf(name) {
    const all = button("", () => { this.more[name].isWhole = true; this.page.draw(); });
    const words = make("span", {});
    const root = byId(`pool-${name}`).appendChild(make("p", { class: "pool-more" }, words, all));
    return { root, words, all, isWhole: false };
  }

  /** The first of them, or as many as a page can have. */
  update(name, items) {
    const more = this.more[name];
    const most = more.isWhole || this.find.value !== "" ? MOST_ROWS : FIRST_ROWS;
    this[name].update(items.slice(0, most));
    show(more.root, items.length > most);
    show(more.all, most === FIRST_ROWS);
    say(more.all, `Show all ${amount(items.length)}`);
    say(more.words, most === FIRST_ROWS ? "" : `The first ${MOST_ROWS} of ${amount(items.length)}.`);
  }

  get isFound() {
    const wanted = this.find.value.trim().toLowerCase();
    return (text) => wanted === "" || text.includes(wanted);
  }

  draw({ leases, claims, gpus }) {
    const now = nowS();
    const reserved = claims.filter((claim) => isReserved(claim, now)).sort((a, b) => a.starts_at - b.starts_at);
    this.update("waiting", claims.filter((claim) => !isReserved(claim, now)));
    this.reserved.update(reserved);
    show(byId("pool-reserved-section"), reserved.length > 0);
    const { isFound } = this;
    const found = leases.filter((lease) => isFound(textOf(lease, gpus)));
    const mine = ({ owner }) => (this.page.isMine(owner) ? 0 : 1);
    say(this.held.empty, leases.length === 0 ? "No leases." : "No lease matches.");
    this.update("held", found.sort((a, b) => mine(a) - mine(b) || a.until - b.until || byHost(a, b)));
    show(this.find, leases.length > 0);
  }

  /** A lease or a claim by itself, as it is pressed in the week. */
  open(item) {
    const isLease = item.until !== undefined;
    const facts = isLease ? [
      ["Owner", item.owner], ["GPUs", `${item.host} · ${leasedWords(item, this.page.gpus)}`], ["Since", moment(item.since)], ["Until", moment(item.until)],
      ...(item.host_words ? [["Node", item.host_words]] : []), ["Used", useWords(item)], ["Command", item.command || (item.is_run ? "a command" : "without a command")],
    ] : [["Owner", item.owner], ["Request", item.asks], ["Node", item.hosts.join(", ") || "any"], ["From", moment(item.starts_at)], ["For", age(item.term_s)], ["Status", sentence(item.why)]];
    const actions = isLease ? leaseActions(this.page, item) : claimActions(this.page, item);
    const dialog = tell(isLease ? "Lease" : "Reservation", make("dl", { class: "pool-facts" }, ...factLines(facts)),
      make("div", { class: "pool-acts" }, ...actions.map(([word, does]) => button(word, () => { dialog.close(); does(item); }))));
  }
}

/** Who waits: of a page that may change what is its owner's. */
export const waitingRows = (page, label = "Waiting claims", empty = "The queue is empty.") => new Rows({
  label, key: ({ id }) => id, empty, isSteady: true,
  columns: [
    { head: "Owner", draw: (cell, claim) => stacked(cell, ["strong", "name", `${claim.place}. ${claim.owner}`], ["small", null, `${claim.team === null ? "" : `${claim.team}, `}since ${when(claim.asked_at)}`, moment(claim.asked_at)]) },
    { head: "Request", draw: (cell, claim) => stacked(cell, ["span", null, claim.asks], ["small", null, sentence(whyWords(claim))]) },
    { head: "Starts", draw: drawEstimate },
  ],
  actions: (claim) => claimActions(page, claim),
});

/** Who holds what until when. */
export const leaseRows = (page, label = "Leases", empty = "No leases.") => new Rows({
  label, key: ({ id }) => id, empty, isSteady: true,
  columns: [
    { head: "Owner", draw: (cell, lease) => stacked(cell, ["strong", "name", lease.owner], ["small", null, lease.command || (lease.is_run ? "a command" : "without a command")]) },
    { head: "GPUs", draw: (cell, lease) => stacked(cell, ["span", null, `${lease.host} · ${leasedWords(lease, page.gpus)}`], ["small", null, [page.gpus.get(lease.gpus[0])?.model, lease.host_words].filter(Boolean).join(" · ")]) },
    { head: "Until", draw: drawUntil },
    { head: "Used", draw: drawUse },
  ],
  actions: (lease) => leaseActions(page, lease),
});

function claimActions(page, claim) {
  if (!claim.is_here || !page.mayChange(claim.owner)) return [];
  return [["Withdraw", (newest) => withdraw(page, newest), { "aria-label": `Withdraw the claim of ${claim.owner}: ${claim.asks}` }]];
}

function leaseActions(page, lease) {
  if (!page.mayChange(lease.owner)) return [];
  const what = `${leasedWords(lease, page.gpus)} of ${lease.host}, leased to ${lease.owner}`;
  const actions = [["Extend", (newest) => extend(page, newest), { "aria-label": `Extend ${what}` }]];
  if (!lease.is_run) actions.push(["Give back", (newest) => giveBack(page, newest), { "aria-label": `Give back ${what}` }]);
  return actions;
}

// What it asks for stands above it already.
const whyWords = ({ asks, why }) => (why.startsWith(`it asks for ${asks}; `) ? why.slice(`it asks for ${asks}; `.length) : why);

// From earlier runs, where that is known; else when all that runs keeps to its time.
function drawEstimate(cell, { wait_s: waitS, estimate = "" }) {
  const most = waitS === null ? "" : `within ${age(Math.max(10, waitS))}`;
  stacked(cell, ["span", null, estimate || most || "–", estimate === "" && most === "" ? "No estimate yet" : "If running leases end on time"],
    estimate === "" ? null : ["small", null, most]);
}

function drawUntil(cell, { until }) {
  const overS = secondsSince(until);
  stacked(cell, ["span", null, untilWords(until), moment(until)],
    overS > 0 ? ["span", "pill stale", `${age(Math.max(10, overS))} overdue`, "Held longer than requested"] : ["small", null, when(until)]);
}

function useWords({ state, idle_since: since }) {
  if (state === "offered") return "begins";
  return since === null ? "in use" : `idle for ${age(secondsSince(since))}`;
}

function drawUse(cell, lease) {
  const isLong = lease.idle_since !== null && secondsSince(lease.idle_since) > IDLE_LONG_S;
  parts(cell, ["span", isLong ? "pool-idle" : null, useWords(lease), lease.idle_since === null ? null : `Since ${moment(lease.idle_since)}`],
    lease.state === "active" || lease.state === "offered" ? null : ["span", "pill stale", lease.state]);
}
