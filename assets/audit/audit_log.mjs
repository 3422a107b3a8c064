// The Record page: what was asked, of what, by whom, and what came of it.

import { isAdmin, me } from "../parts/account.mjs";
import { look, lookAtAll } from "../parts/api.mjs";
import { sentence } from "../parts/dialog.mjs";
import { byId, make, say, show } from "../parts/dom.mjs";
import { amount, moment, plural, when } from "../parts/format.mjs";

const PAGE = 100;
const EVERY_MS = 5_000;
const TYPED_MS = 300;
const FIELDS = ["actor", "node"];
const CHOICES = ["kind", "outcome", "span"];
const BAD = new Set(["unkillable", "not_effective", "unknown"]);
const ON_THE_WAY = new Set(["requested", "queued", "sent", "accepted", "acting"]);
const QUIET = new Set(["refused", "expired", "denied", "failed"]);

export class Record {
  constructor(root, live) {
    Object.assign(this, { root, view: readView(location.search), rows: new Map(), items: [], next: null, opened: null, lookNumber: 0, kinds: new Set(), outcomes: new Set(), nodes: [] });
    this.build();
    this.listen();
    document.addEventListener("visibilitychange", () => this.look());
    live.addEventListener("state", () => { if (live.state === "live") this.look(); });
    this.begin();
  }

  build() {
    for (const place of this.root.querySelectorAll(".record-field")) {
      const { name } = place.dataset;
      place.append(make("input", { id: `record-${name}`, type: "search", autocomplete: "off", spellcheck: "false", autocapitalize: "none", maxlength: "128", placeholder: name === "actor" ? "any name" : "any node", list: name === "node" ? "record-hosts" : null }));
    }
    this.root.append(make("datalist", { id: "record-hosts" }));
    this.body = make("tbody", {});
    this.table = make("table", { class: "record" }, make("thead", {}, make("tr", {}, ...["When", "Who", "What", "Where", "Outcome", ""].map((head) => make("th", { scope: "col" }, head === "" ? make("span", { class: "unseen" }, "Details") : head)))), this.body);
    this.empty = make("p", { class: "none", role: "status" }, "Loading …");
    this.older = make("button", { type: "button", class: "button", onclick: () => this.lookOlder() }, "Older ones");
    byId("record-place").append(this.table, this.empty, make("p", { class: "record-older" }, this.older));
    show(this.table, false);
    show(this.older, false);
    for (const name of [...FIELDS, ...CHOICES]) this.keepOption(byId(`record-${name}`), this.view[name]);
  }

  // A choice from a link may not have been seen on this page yet.
  keepOption(control, value) {
    if (control.tagName === "SELECT" && value !== "" && ![...control.options].some((one) => one.value === value)) control.append(make("option", { value }, words(value)));
    control.value = value;
  }

  listen() {
    for (const name of FIELDS) byId(`record-${name}`).addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.choose(), TYPED_MS); });
    for (const name of CHOICES) byId(`record-${name}`).addEventListener("change", () => this.choose());
    byId("record-verify").addEventListener("click", () => this.verify());
    document.addEventListener("keydown", (event) => { if (event.key === "/" && !event.target.matches("input, select, textarea")) { event.preventDefault(); byId("record-actor").focus(); } });
  }

  choose() {
    for (const name of [...FIELDS, ...CHOICES]) this.view[name] = byId(`record-${name}`).value.trim();
    history.replaceState(history.state, "", addressOf(this.view));
    this.items = [];
    this.look(true);
  }

  query(more = {}) {
    const query = new URLSearchParams({ limit: PAGE });
    for (const name of ["actor", "kind", "task"]) if (this.view[name] !== "") query.set(name, this.view[name]);
    if (this.view.node !== "") query.set("node", this.idOf(this.view.node));
    if (this.view.span !== "") query.set("since", String(Math.floor(Date.now() / 1000 - Number(this.view.span))));
    for (const [name, value] of Object.entries(more)) query.set(name, value);
    return `audit?${query}`;
  }

  /** People know a node by its host; the record by its key. */
  idOf(name) {
    return this.nodes.find(({ host }) => host.toLowerCase() === name.toLowerCase())?.id ?? name;
  }

  async begin() {
    const [person, nodes] = await Promise.all([me(), lookAtAll("nodes")]).catch(() => [null, []]);
    this.nodes = nodes;
    for (const id of ["record-verify", "record-export"]) show(byId(id), person !== null && isAdmin(person));
    byId("record-hosts").append(...nodes.map(({ host }) => make("option", { value: host })));
    this.look(true);
  }

  async look(isAnew = false) {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const number = (this.lookNumber += 1);
    try {
      const { items, next } = await look(this.query());
      if (number !== this.lookNumber) return;
      this.take(items, next, isAnew);
      show(byId("record-problem"), false);
    } catch (error) {
      if (number !== this.lookNumber) return;
      this.fail(error);
      if (error.status === 403) return;
    }
    this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  fail(error) {
    const isForbidden = error.status === 403;
    show(byId("record-problem"), !isForbidden);
    if (!isForbidden) say(byId("record-problem"), `This list is not up to date: ${sentence(error.message)}`);
    if (this.items.length === 0) say(this.empty, isForbidden ? `The record is for operators and admins: ${sentence(error.message)}` : "Nothing is known yet.");
  }

  // What was read of older ones stays; the newest come on top.
  take(items, next, isAnew) {
    if (isAnew || this.items.length <= PAGE) this.next = next;
    const oldest = items.at(-1)?.seq ?? Infinity;
    this.items = isAnew || this.items.length <= PAGE ? items : [...items, ...this.items.filter(({ seq }) => seq < oldest)];
    this.draw();
  }

  async lookOlder() {
    this.older.disabled = true;
    try {
      const { items, next } = await look(this.query({ cursor: this.next }));
      this.next = next;
      const known = new Set(this.items.map(({ seq }) => seq));
      this.items = [...this.items, ...items.filter(({ seq }) => !known.has(seq))];
      this.draw();
    } catch (error) {
      say(byId("record-problem"), sentence(error.message));
      show(byId("record-problem"), true);
    } finally {
      this.older.disabled = false;
    }
  }

  /** The hub does not look for outcomes; of what is here, the page does, and says of how much. */
  matching() {
    return this.view.outcome === "" ? this.items : this.items.filter(({ outcome }) => outcome === this.view.outcome);
  }

  draw() {
    const items = this.matching();
    show(this.table, items.length > 0);
    show(this.empty, items.length === 0);
    show(this.older, this.next !== null && this.next !== undefined);
    const isFiltered = [...FIELDS, ...CHOICES].some((name) => this.view[name] !== "");
    say(this.empty, isFiltered ? "No record matches." : "Nothing has been recorded yet. The first act, sign-in or change will stand here.");
    say(byId("record-words"), this.words(items.length));
    this.offer("kind", this.items.map(({ kind }) => kind));
    this.offer("outcome", this.items.map(({ outcome }) => outcome));
    const keys = new Set(items.map(({ seq }) => seq));
    for (const [seq, row] of this.rows) if (!keys.has(seq)) { row.root.remove(); row.more?.remove(); this.rows.delete(seq); }
    items.forEach((item) => this.drawRow(item));
  }

  words(count) {
    const all = `${plural(this.items.length, "record")}${this.next ? ", the newest" : ""}`;
    return this.items.length === 0 ? "" : count === this.items.length ? all : `${amount(count)} of ${all}`;
  }

  offer(name, values) {
    const known = name === "kind" ? this.kinds : this.outcomes;
    const control = byId(`record-${name}`);
    for (const value of new Set(values)) {
      if (value === null || value === undefined || value === "" || known.has(value)) continue;
      known.add(value);
      if (![...control.options].some((one) => one.value === value)) control.append(make("option", { value }, words(value)));
    }
  }

  drawRow(item) {
    if (!this.rows.has(item.seq)) this.rows.set(item.seq, this.build1(item));
    const row = this.rows.get(item.seq);
    say(row.when, when(item.at));
    this.body.append(row.root);
    if (row.more !== null) this.body.append(row.more);
  }

  build1(item) {
    const at = make("td", { title: moment(item.at), "data-head": "When" });
    const tone = BAD.has(item.outcome) ? "lost" : QUIET.has(item.outcome) ? "stale" : ON_THE_WAY.has(item.outcome) || !item.outcome ? "" : "ok";
    const button = make("button", { type: "button", class: "button small", "aria-expanded": "false", "aria-label": `Details of record ${item.seq}` }, "More");
    const row = { when: at, more: null };
    button.addEventListener("click", () => this.toggle(row, item, button));
    row.root = make("tr", { "data-seq": String(item.seq) }, at,
      make("td", { "data-head": "Who" }, make("strong", {}, item.actor?.name ?? item.actor ?? "–")),
      make("td", { "data-head": "What", class: "record-what" }, make("span", { class: "record-action" }, words(item.action ?? item.kind)), make("span", { class: "record-sentence" }, item.sentence ?? "")),
      make("td", { "data-head": "Where" }, item.host ?? "–"),
      make("td", { "data-head": "Outcome" }, ...(item.outcome ? [make("span", { class: `pill ${tone}` }, words(item.outcome))] : ["–"])),
      make("td", { class: "row-actions" }, button));
    return row;
  }

  toggle(row, item, button) {
    const isOpen = row.more === null;
    button.setAttribute("aria-expanded", String(isOpen));
    say(button, isOpen ? "Less" : "More");
    if (!isOpen) { row.more.remove(); row.more = null; return; }
    const facts = [["Record", amount(item.seq)], ["When", moment(item.at)], ["Kind", words(item.kind)], ["Node", item.node], ["Task", item.task_id], ["Command", item.command_id], ["Hash", item.hash],
      ...Object.entries(item.detail ?? {}).map(([key, value]) => [words(key), typeof value === "object" ? JSON.stringify(value) : String(value)])].filter(([, value]) => value !== null && value !== undefined && value !== "");
    const task = item.task_id ? [make("a", { class: "button small", href: `/tasks?task=${encodeURIComponent(item.task_id)}` }, "The task")] : [];
    row.more = make("tr", { class: "record-more" }, make("td", { colspan: "6" }, make("dl", { class: "facts" }, ...facts.map(([label, value]) => make("div", {}, make("dt", {}, label), make("dd", {}, value)))), ...task));
    row.root.after(row.more);
  }

  async verify() {
    const button = byId("record-verify");
    const verdict = byId("record-verdict");
    button.disabled = true;
    show(verdict, true);
    verdict.className = "verdict";
    say(verdict, "Every record is being read …");
    try {
      const answer = await look("audit/verify");
      const nodes = (answer.nodes ?? []).filter(({ broken }) => broken);
      verdict.classList.add(answer.broken || nodes.length > 0 ? "bad" : "good");
      say(verdict, verdictWords(answer, nodes));
    } catch (error) {
      verdict.classList.add("bad");
      say(verdict, `Not verified: ${sentence(error.message)}`);
    } finally {
      button.disabled = false;
    }
  }
}

function verdictWords({ broken, records, head, nodes = [] }, brokenNodes) {
  if (broken) return `The record is broken at ${amount(broken.seq)}: ${sentence(broken.sentence)} Compare with a copy from another place: gpudeck audit verify.`;
  if (brokenNodes.length > 0) return `The hub's record holds, but that of ${plural(brokenNodes.length, "node")} does not: ${brokenNodes.map(({ node, host, broken: why }) => `${host ?? node} (${why.sentence ?? why})`).join("; ")}.`;
  const also = nodes.length > 0 ? ` The heads of ${plural(nodes.length, "node")} agree with it.` : "";
  return `All ${plural(records, "record")} hold together; the newest is ${head ? head.slice(0, 16) : "not there yet"}….${also}`;
}

const words = (text) => String(text).replaceAll("_", " ");

function readView(search) {
  const given = new URLSearchParams(search);
  return Object.fromEntries([...FIELDS, ...CHOICES, "task"].map((name) => [name, given.get(name) ?? ""]));
}

function addressOf(view) {
  const query = new URLSearchParams(Object.entries(view).filter(([, value]) => value !== ""));
  return query.toString() === "" ? "/record" : `/record?${query}`;
}
