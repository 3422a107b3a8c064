// Settings: which machines belong here.

import { lookAtAll } from "../parts/api.mjs";
import { areaField, tell, textField } from "../parts/dialog.mjs";
import { make, say, show } from "../parts/dom.mjs";
import { connectNode } from "./connect_node.mjs";
import { plural, when } from "../parts/format.mjs";
import { change } from "../parts/password_prompt.mjs";
import { agentWords, isReaderWell, readerWords, refusedWords } from "../fleet/node_words.mjs";
import { Rows, parts, timeCell } from "../parts/rows.mjs";
import { Section } from "./settings_section.mjs";
import { toast } from "../parts/toast.mjs";

const MOST_ROWS = 300;
const STATE_PILL = { live: "ok", suspect: "stale", silent: "stale", waiting: "stale", revoked: "lost" };
const ORDER = { waiting: 0, approved: 1, revoked: 2 };

const nodePath = (node) => `nodes/${encodeURIComponent(node.id)}`;
const stateOf = (node) => (node.imported ? "imported" : node.access === "approved" ? node.state : node.access);

export class Nodes extends Section {
  constructor(root, page) {
    super(root, page, 2_000);
    Object.assign(this, { holds: page.holds, nodes: [] });
    this.rows = new Rows({
      label: "Nodes", key: ({ id }) => id, empty: "No nodes yet. “Connect a node” creates a command to run on one.",
      columns: [
        { head: "Node", draw: (cell, node) => parts(cell, ["strong", "name", node.host], ["code", "fingerprint", node.fingerprint, "The fingerprint of the node's key"]) },
        { head: "State", draw: (cell, node) => drawState(cell, node, this.holds.of(node.id)) },
        { head: "Group", text: ({ group }) => group },
        { head: "GPUs", text: ({ gpus, access }) => (access === "approved" ? String(gpus) : "–") },
        { head: "Agent", draw: drawAgent },
        { head: "Last seen", draw: timeCell((node) => node.last_heard_at, "never") },
      ],
      actions: (node) => this.actions(node),
    });
    this.unused = new Rows({
      label: "Pending enrolments", key: ({ id }) => id, empty: "",
      columns: [
        { head: "For", text: ({ host, networks }) => [host ?? "any node", ...(networks === "" ? [] : [`from ${networks}`])].join(", ") },
        { head: "Nodes", text: ({ uses, used }) => `${used} of ${uses}` },
        { head: "Group", text: ({ group }) => group },
        { head: "Created", draw: (cell, one) => say(cell, `${when(one.created_at)} by ${one.created_by}`) },
        { head: "Expires", draw: timeCell((one) => one.expires_at) },
      ],
      actions: (one) => [["Withdraw", () => this.withdraw(one), { "aria-label": `Withdraw the enrolment for ${one.host ?? "any node"}` }]],
    });
    this.build();
    this.onClick("connect-node", () => this.connect());
    if (location.hash === "#nodes/connect") this.connect();
  }

  build() {
    this.find = make("input", { type: "search", class: "find", placeholder: "Find a node", "aria-label": "Find a node", autocomplete: "off", spellcheck: "false" });
    this.find.addEventListener("input", () => this.draw());
    this.count = make("p", { class: "count", role: "status" });
    this.unusedPlace = make("div", { class: "unused" }, make("h3", {}, "Pending enrolments"), this.unused.root);
    this.approveMany = make("button", { type: "button", class: "button", hidden: "", onclick: () => this.approveList() }, "Approve a list …");
    this.place.append(make("div", { class: "find-line" }, this.find, this.count, this.approveMany), this.rows.root, this.unusedPlace);
    show(this.unusedPlace, false);
  }

  ask() {
    return Promise.all([lookAtAll("nodes").then((nodes) => nodes.filter(({ link }) => link === null)), lookAtAll("enrolments")]);
  }

  take([nodes, places]) {
    this.everyMs = nodes.length > MOST_ROWS ? 15_000 : 2_000;
    this.nodes = nodes.sort((a, b) => ORDER[a.access] - ORDER[b.access] || a.host.localeCompare(b.host, "en", { numeric: true }));
    const open = places.filter((one) => one.used_by === null && one.expires_at * 1000 > Date.now());
    show(this.unusedPlace, open.length > 0);
    this.unused.update(open);
    this.draw();
  }

  draw() {
    const text = this.find.value.trim().toLowerCase();
    const found = this.nodes.filter((node) => `${node.host} ${node.group} ${node.id} ${node.fingerprint} ${stateOf(node)}`.toLowerCase().includes(text));
    const waiting = this.nodes.filter(({ access }) => access === "waiting").length;
    this.rows.update(found.slice(0, MOST_ROWS));
    const more = found.length > MOST_ROWS ? `, the first ${MOST_ROWS} shown` : "";
    const words = found.length === this.nodes.length ? plural(found.length, "node") : `${found.length} of ${plural(this.nodes.length, "node")}`;
    say(this.count, this.nodes.length === 0 ? "" : `${words}${more}${waiting === 0 ? "" : `; ${waiting} waiting for approval`}`);
    show(this.find.parentElement, this.nodes.length > 0);
    show(this.approveMany, waiting > 1);
  }

  actions(node) {
    const label = (word) => ({ "aria-label": `${word} ${node.host}` });
    const held = this.holds.of(node.id);
    const mayHold = node.access === "approved" && this.holds.mayHold && this.holds.fleet === null;
    const [word, act, of] = held === null ? ["Stop actions", "hold", "Stop actions on"] : ["Resume actions", "release", "Resume actions on"];
    if (node.access === "revoked" || node.imported) return [];
    return [
      ...(node.access === "waiting" ? [["Approve", () => this.approve(node), { ...label("Approve"), class: "button small first" }]] : []),
      ...(mayHold && (held === null || held.wanted) ? [[word, () => this.holds[act](node.id, node.host).then(() => this.draw()), label(of)]] : []),
      ["Group", () => this.group(node), label("Change the group of")],
      ["Revoke", () => this.revoke(node), label("Revoke")],
    ];
  }

  approve(node) {
    return this.asked({
      title: `Approve ${node.host}?`, verb: "Approve",
      lead: ["The agent shows its fingerprint at startup. Compare it with this one:", make("p", { class: "command" }, make("code", {}, node.fingerprint))],
      submit: () => change("POST", `${nodePath(node)}/approve`),
    });
  }

  async approveList() {
    const answer = await this.asked({
      title: "Approve nodes by fingerprint", verb: "Approve",
      lead: "Each agent shows its fingerprint at startup. Paste those that you expect, one on a line; only these are approved.",
      fields: [areaField("fingerprints", "Fingerprints", "", { required: "", rows: "8" })],
      submit: (given) => change("POST", "nodes/approvals", { fingerprints: given.get("fingerprints").split("\n").map((line) => line.split("#")[0].trim()).filter(Boolean) }),
    });
    if (answer === null) return;
    const left = answer.items.filter(({ outcome }) => outcome === "unknown" || outcome === "revoked");
    const approved = answer.items.filter(({ outcome }) => outcome === "approved").length;
    if (left.length === 0) toast(`${plural(approved, "node")} approved.`);
    else tell("Not all were approved", ...left.map(({ fingerprint, outcome }) => make("p", {}, make("code", {}, fingerprint), outcome === "revoked" ? " is revoked." : " has not connected.")));
  }

  async group(node) {
    const before = node.group;
    const groups = [...new Set(this.nodes.map(({ group }) => group))].slice(0, 8).join(", ");
    const answer = await this.asked({
      title: `Group of ${node.host}`, verb: "Save",
      lead: "People and tokens only see nodes of their groups. Those without access to the new group lose this node immediately.",
      fields: [textField("group", "Group", { value: before, required: "", maxlength: "64", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*" }, `In use: ${groups}.`)],
      submit: (given) => change("PATCH", nodePath(node), { group: given.get("group").trim() }),
    });
    if (answer !== null) toast(`${node.host} is now in the group ${answer.group}.`, async () => {
      await change("PATCH", nodePath(node), { group: before });
      await this.look();
    });
  }

  revoke(node) {
    const lead = "Its connection is closed within a second and its key is no longer accepted. Tasks on it keep running. To bring it back, delete agent.key in its data folder and connect it again.";
    return this.sure(`Revoke ${node.host}?`, "Revoke", lead, () => change("POST", `${nodePath(node)}/revoke`));
  }

  withdraw(one) {
    return this.attempt(() => change("DELETE", `enrolments/${encodeURIComponent(one.id)}`), "Withdrawn: the command no longer works.");
  }

  async connect() {
    await connectNode(() => this.look());
    await this.look();
  }
}

// What is wrong with it comes first: that is why somebody looks here.
function drawAgent(cell, node) {
  if (node.access !== "approved" || node.imported || node.agent_version === "") { parts(cell, ["span", "", "–"]); return; }
  const driver = node.driver_version === null ? null : ["span", "agent-note", `driver ${node.driver_version}`];
  const trouble = isReaderWell(node) && (node.reader?.detail ?? "") === "" ? null : ["span", "agent-note trouble", readerWords(node)];
  parts(cell, trouble, ["span", "agent-cost", agentWords(node)], driver);
}

function drawState(cell, node, hold) {
  const state = stateOf(node);
  const title = { imported: "A recording: history only", waiting: "Waiting for approval by an admin", revoked: "Its key is no longer accepted", suspect: "No data for 15 s", silent: "No data for 60 s" }[state];
  const refused = refusedWords(node);
  parts(cell, ["span", `pill ${STATE_PILL[state] ?? ""}`, state, title], refused === null ? null : ["span", "agent-note trouble", refused], hold === null ? null : ["span", "pill stale", "held", "No actions on this node"]);
}
