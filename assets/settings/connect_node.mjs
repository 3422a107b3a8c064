// "Connect a node": a place for one, the line to paste there, and what becomes of it.

import { look } from "../parts/api.mjs";
import { ask, checkField, copyable, open, sentence, textField } from "../parts/dialog.mjs";
import { make, say, show } from "../parts/dom.mjs";
import { age, plural } from "../parts/format.mjs";
import { change } from "../parts/password_prompt.mjs";

const LOOK_EVERY_MS = 1_000;

/** Ends when the dialog is closed; `onChange` is called when the list of nodes has changed. */
export async function connectNode(onChange) {
  const place = await ask({
    title: "Connect a node", verb: "Create command",
    lead: "The node generates its own key, which identifies it from then on.",
    fields: [
      textField("group", "Group", { value: "default", required: "", maxlength: "64", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*" }),
      textField("host", "Only for these hosts", { maxlength: "4096", placeholder: "any" }, "A host name, or a list such as gpu[01-40]. Empty: any node that uses the command."),
      textField("uses", "Number of nodes", { inputmode: "numeric", pattern: "[0-9]{1,5}", placeholder: "1, or as many as the list names" }),
      textField("networks", "Only from these networks", { maxlength: "4096", placeholder: "any" }, "Addresses or networks such as 10.0.0.0/8, comma-separated."),
      checkField("approve", "Require approval by fingerprint"),
    ],
    submit: (given) => change("POST", "enrolments", {
      group: given.get("group").trim(), approve: given.get("approve") !== null,
      networks: given.get("networks").trim(),
      ...(given.get("host").trim() === "" ? {} : { host: given.get("host").trim() }),
      ...(given.get("uses").trim() === "" ? {} : { uses: Number(given.get("uses")) }),
    }),
  });
  if (place !== null) await new Promise((resolve) => new Waiting(place, onChange, resolve));
}

class Waiting {
  constructor(place, onChange, closed) {
    Object.assign(this, { place, onChange, node: null });
    this.until = make("p", {});
    this.words = make("p", { class: "waiting-words", role: "status" }, "Waiting for the node …");
    this.approveButton = make("button", { type: "button", class: "button first", hidden: "", onclick: () => this.approve() }, "Approve");
    this.dialog = open("Connect a node", this.content(), () => { clearInterval(this.timer); closed(); });
    this.timer = setInterval(() => this.look(), LOOK_EVERY_MS);
    this.look();
  }

  content() {
    const close = make("button", { type: "button", class: "button first", onclick: () => this.dialog.close() }, "Done");
    this.foot = make("div", { class: "dialog-foot" },
      make("button", { type: "button", class: "button", onclick: () => this.withdraw() }, "Withdraw"), this.approveButton, close);
    return make("div", { class: "dialog-body" },
      make("p", {}, `Run this command on ${this.place.uses === 1 ? "the node" : "each node"}, as the user the agent should run as:`),
      copyable(this.place.command, "the command"), this.until, this.words, this.foot);
  }

  look() {
    const left = this.place.expires_at - Date.now() / 1000;
    say(this.until, left > 0 ? `Valid for ${plural(this.place.uses, "node")}, for another ${age(left)}. It will not be shown again.` : "Expired; create a new one.");
    return this.attempt(() => this.find());
  }

  async attempt(act) {
    await act().catch((error) => say(this.words, sentence(error.message)));
  }

  async find() {
    const { items } = await look("enrolments");
    const place = items.find(({ id }) => id === this.place.id);
    if (this.place.uses > 1) {
      this.count(place?.used ?? 0);
      return;
    }
    const used = place?.used_by ?? null;
    if (used === null) return;
    const node = await look(`nodes/${encodeURIComponent(used)}`);
    if (JSON.stringify([node.access, node.state, node.gpus]) === this.told) return;
    this.told = JSON.stringify([node.access, node.state, node.gpus]);
    this.node = node;
    say(this.words, nodeWords(node));
    this.words.classList.toggle("good", node.access === "approved" && node.state === "live");
    show(this.approveButton, node.access === "waiting");
    show(this.foot.firstElementChild, false);
    this.onChange();
  }

  /** Of a command for several nodes: how many are in; Settings lists which. */
  count(used) {
    if (used === this.used) return;
    this.used = used;
    say(this.words, `${used} of ${this.place.uses} nodes are enrolled.`);
    this.words.classList.toggle("good", used === this.place.uses);
    if (used > 0) this.onChange();
  }

  approve() {
    return this.attempt(async () => {
      await change("POST", `nodes/${encodeURIComponent(this.node.id)}/approve`);
      show(this.approveButton, false);
      await this.look();
    });
  }

  withdraw() {
    return this.attempt(() => change("DELETE", `enrolments/${encodeURIComponent(this.place.id)}`).then(() => this.dialog.close()));
  }
}

function nodeWords({ access, state, host, fingerprint, gpus }) {
  if (access === "waiting") return `${host} is waiting for approval. Compare the fingerprint shown by its agent: ${fingerprint}`;
  if (access === "revoked") return `${host} was revoked.`;
  return state === "live" && gpus > 0 ? `${host} is connected, with ${plural(gpus, "GPU")}.` : `${host} is connected; reading its GPUs …`;
}
