// The Audit log page: what was asked, of what, by whom, and what came of it.

import { Graph } from "../charts/graph.mjs";
import { readView, writeView } from "../parts/address.mjs";
import { look, lookAtAll } from "../parts/api.mjs";
import { sentence } from "../parts/dialog.mjs";
import { Lines, afterPause, button, byId, factLines, isTyping, make, onTheme, options, say, show } from "../parts/dom.mjs";
import { amount, moment, plural, when } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";

const PAGE = 100;
const OVERVIEW_PX = 150;
const EVERY_MS = 5_000;
const TYPED_MS = 300;
const FIELDS = ["actor", "node"];
const CHOICES = ["kind", "outcome", "span", "system"];
const USUAL = Object.fromEntries([...FIELDS, ...CHOICES, "task"].map((name) => [name, ""]));
const BAD = new Set(["unkillable", "not_effective", "unknown"]);
const ON_THE_WAY = new Set(["requested", "queued", "sent", "accepted", "acting"]);
const QUIET = new Set(["refused", "expired", "denied", "failed"]);

export default class AuditLog extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("audit-problem"), what: "list" });
    Object.assign(this, { root, view: readView(USUAL), opened: new Set(), items: [], next: null, nodes: [], graph: new Graph("audit-graph") });
    this.build();
    this.listen();
    this.begin();
  }

  build() {
    for (const place of this.root.querySelectorAll(".audit-field")) {
      const { name } = place.dataset;
      place.append(make("input", { id: `audit-${name}`, type: "search", autocomplete: "off", spellcheck: "false", autocapitalize: "none", maxlength: "128", placeholder: name === "actor" ? "any name" : "any node", list: name === "node" ? "audit-hosts" : null }));
    }
    this.root.append(make("datalist", { id: "audit-hosts" }));
    this.body = make("tbody", {});
    this.rows = new Lines(this.body, ({ key }) => key, (line) => (line.isMore ? moreRow(line.item) : this.row(line.item)));
    this.table = make("table", { class: "audit" }, make("thead", {}, make("tr", {}, ...["When", "Who", "What", "Where", "Outcome", ""].map((head) => make("th", { scope: "col" }, head === "" ? make("span", { class: "unseen" }, "Details") : head)))), this.body);
    this.empty = make("p", { class: "none", role: "status" }, "Loading …");
    this.older = make("button", { type: "button", class: "button", onclick: () => this.lookOlder() }, "Load older");
    byId("audit-place").append(this.table, this.empty, make("p", { class: "audit-older" }, this.older));
    show(this.table, false);
    show(this.older, false);
    for (const name of [...FIELDS, ...CHOICES]) this.keepOption(byId(`audit-${name}`), this.view[name]);
  }

  // A choice from a link may not have been seen on this page yet.
  keepOption(control, value) {
    if (control.tagName === "SELECT") offer(control, [value]);
    control.value = value;
  }

  listen() {
    for (const name of FIELDS) byId(`audit-${name}`).addEventListener("input", afterPause(TYPED_MS, () => this.choose()));
    for (const name of CHOICES) byId(`audit-${name}`).addEventListener("change", () => this.choose());
    byId("audit-verify").addEventListener("click", () => this.verify());
    onTheme(() => this.drawOverview());
    document.addEventListener("keydown", (event) => { if (event.key === "/" && !isTyping(event.target)) { event.preventDefault(); byId("audit-actor").focus(); } });
  }

  choose() {
    for (const name of [...FIELDS, ...CHOICES]) this.view[name] = byId(`audit-${name}`).value.trim();
    writeView(this.view, USUAL);
    this.items = [];
    this.look(true);
    this.drawOverview();
  }

  query(more = {}) {
    const since = this.since() === 0 ? {} : { since: String(this.since()) };
    return `audit?${new URLSearchParams({ limit: PAGE, ...this.filters(), ...since, ...more })}`;
  }

  /** Second from which on entries are wanted; 0: of any time. */
  since() {
    return this.view.span === "" ? 0 : Math.floor(Date.now() / 1000 - Number(this.view.span));
  }

  filters() {
    const { actor, kind, task, node, system } = this.view;
    const found = { actor, kind, task, node: this.idOf(node), system: system === "" && kind === "" ? "false" : "" };
    return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== ""));
  }

  async drawOverview() {
    if (!this.may("operator")) { show(byId("audit-overview"), false); return; }
    const end = Math.ceil(Date.now() / 1000);
    const asked = this.graph.ask({ start: this.since(), end, filters: this.filters() }, { height: OVERVIEW_PX, at: end });
    const { number } = this.graph;
    const isThere = await asked.then(() => true, () => false); // the list says how we stand with the hub
    if (number === this.graph.number) show(byId("audit-overview"), isThere);
  }

  /** People know a node by its host; the record by its key. */
  idOf(name) {
    return this.nodes.find(({ host }) => host.toLowerCase() === name.toLowerCase())?.id ?? name;
  }

  async begin() {
    [this.nodes] = await Promise.all([lookAtAll("nodes").catch(() => []), this.meet()]);
    for (const id of ["audit-verify", "audit-export"]) show(byId(id), this.may("admin"));
    this.drawOverview();
    byId("audit-hosts").append(...this.nodes.map(({ host }) => make("option", { value: host })));
    this.look(true);
  }

  ask() {
    return look(this.query());
  }

  fail(error) {
    const isForbidden = error.status === 403;
    if (isForbidden) this.complain("");
    else super.fail(error);
    if (this.items.length === 0) say(this.empty, isForbidden ? `The audit log is for operators and admins: ${sentence(error.message)}` : "No data yet.");
    return !isForbidden;
  }

  // What was read of older ones stays; the newest come on top.
  take({ items, next }, isAnew = false) {
    const isAll = isAnew || this.items.length <= PAGE;
    if (isAll) this.next = next;
    const oldest = items.at(-1)?.seq ?? Infinity;
    this.items = isAll ? items : [...items, ...this.items.filter(({ seq }) => seq < oldest)];
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
      this.complain(sentence(error.message));
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
    say(this.empty, isFiltered ? "No entry matches." : "No entries yet. The first action, sign-in or change appears here.");
    say(byId("audit-words"), this.words(items.length));
    for (const name of ["kind", "outcome"]) offer(byId(`audit-${name}`), this.items.map((item) => item[name]));
    this.rows.draw(items.flatMap((item) => [{ key: item.seq, item }, ...(this.opened.has(item.seq) ? [{ key: `more ${item.seq}`, item, isMore: true }] : [])]));
  }

  words(count) {
    const all = `${plural(this.items.length, "entry", "entries")}${this.next ? ", the newest" : ""}`;
    return this.items.length === 0 ? "" : count === this.items.length ? all : `${amount(count)} of ${all}`;
  }

  row(item) {
    const at = make("td", { title: moment(item.at), "data-head": "When" });
    const tone = BAD.has(item.outcome) ? "lost" : QUIET.has(item.outcome) ? "stale" : ON_THE_WAY.has(item.outcome) || !item.outcome ? "" : "ok";
    const more = button("More", () => this.toggle(item.seq), { "aria-expanded": "false" });
    const root = make("tr", { "data-seq": String(item.seq) }, at,
      make("td", { "data-head": "Who" }, make("strong", {}, item.actor?.name ?? item.actor ?? "–")),
      make("td", { "data-head": "What", class: "audit-what" }, make("span", { class: "audit-action" }, words(item.action ?? item.kind)), make("span", { class: "audit-sentence" }, item.sentence ?? "")),
      make("td", { "data-head": "Where" }, item.host ?? "–"),
      make("td", { "data-head": "Outcome" }, item.outcome ? make("span", { class: `pill ${tone}` }, words(item.outcome)) : "–"),
      make("td", { class: "row-actions" }, more));
    const draw = () => {
      const isOpen = this.opened.has(item.seq);
      say(at, when(item.at));
      const word = isOpen ? "Less" : "More";
      say(more, word);
      // What is read aloud begins with what is seen: people who speak to the browser say that.
      more.setAttribute("aria-label", `${word} about entry ${item.seq}`);
      more.setAttribute("aria-expanded", String(isOpen));
    };
    return { root, draw };
  }

  toggle(seq) {
    if (!this.opened.delete(seq)) this.opened.add(seq);
    this.draw();
  }

  async verify() {
    const button = byId("audit-verify");
    const verdict = byId("audit-verdict");
    button.disabled = true;
    show(verdict, true);
    verdict.className = "verdict";
    say(verdict, "Reading every entry …");
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

function moreRow(item) {
  const facts = [["Record", amount(item.seq)], ["When", moment(item.at)], ["Kind", words(item.kind)], ["Node", item.node], ["Task", item.task_id], ["Command", item.command_id], ["Hash", item.hash],
    ...Object.entries(item.detail ?? {}).map(([key, value]) => [words(key), typeof value === "object" ? JSON.stringify(value) : String(value)])].filter(([, value]) => value !== null && value !== undefined && value !== "");
  const task = item.task_id ? make("a", { class: "button small", href: `/tasks?task=${encodeURIComponent(item.task_id)}` }, "The task") : null;
  return { root: make("tr", { class: "audit-more" }, make("td", { colspan: "6" }, make("dl", { class: "facts" }, factLines(facts)), task)), draw: () => {} };
}

/** What can be chosen grows by what was seen. */
function offer(select, values) {
  const known = new Set([...select.options].map(({ value }) => value));
  select.append(...options([...new Set(values)].filter((value) => value && !known.has(value)).map((value) => [value, words(value)])));
}

function verdictWords({ broken, records, head, nodes = [] }, brokenNodes) {
  if (broken) return `The audit log is broken at ${amount(broken.seq)}: ${sentence(broken.sentence)} Compare with a copy stored elsewhere: gpudeck audit verify.`;
  if (brokenNodes.length > 0) return `The hub's log is intact, but that of ${plural(brokenNodes.length, "node")} is not: ${brokenNodes.map(({ node, host, broken: why }) => `${host ?? node} (${why.sentence ?? why})`).join("; ")}.`;
  const also = nodes.length > 0 ? ` The heads of ${plural(nodes.length, "node")} match it.` : "";
  return `All ${plural(records, "entry", "entries")} are intact; the newest is ${head ? head.slice(0, 16) : "not available yet"}….${also}`;
}

const WORDS = { "let in": "signed in" }; // as the log keeps it, and as people say it
const words = (text) => WORDS[text] ?? String(text).replaceAll("_", " ");
