// My tasks, and what can be done to them: look, see what would be hit, say why, follow to the end.

import { ROWS } from "./action_table.mjs";
import { isFit, isOpen, verb } from "./action_words.mjs";
import { Lines, make, say } from "./dom.mjs";
import { age, gibibytes, plural, secondsSince } from "./format.mjs";

const PATIENCE_MS = 2_000;
const IN_ROWS = [...ROWS.values()].filter((row) => row.in_rows);
const BUSY = "The kernel is busy with a cell and handles this when it is free (immediately with ipykernel 7 in JupyterLab 4.4 and later). A request more than a minute after its preview is refused.";

const size = (value) => (value === null || value === undefined ? "memory unknown" : Object.values(gibibytes(value)).join(" "));
const fresh = () => `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 12)}`;

export class Acts {
  /** `isFed`: whether pictures still come, which they do while the kernel is at work. */
  constructor(model, isFed) {
    this.model = model;
    this.isFed = isFed;
    this.open = new Map(); // ask id -> Dialog
    const list = make("div", { class: "g-tasks" });
    this.rows = new Lines(list, ({ id }) => id, (task) => new Row(this, task), false);
    this.empty = make("p", { class: "g-sub" });
    this.root = make("section", { class: "g-mine", "aria-label": "Your tasks" }, make("h4", {}, "Your tasks"), this.empty, list);
  }

  show(tasks, empty) {
    this.root.hidden = tasks.length === 0 && empty === "" && this.rows.byKey.size === 0;
    this.empty.hidden = tasks.length > 0;
    say(this.empty, empty);
    const here = new Set(tasks.map(({ id }) => id));
    // How an act ends is read after its task is gone.
    const gone = [...this.rows.byKey.values()].filter(({ id, dialog }) => dialog && !here.has(id));
    this.rows.draw([...tasks, ...gone.map(({ task }) => (task.isGone ? task : { ...task, isGone: true }))]);
  }

  ask(dialog, message) {
    this.open.set(message.ask, dialog);
    this.model.send(message);
  }

  hear(message) {
    this.open.get(message?.ask)?.hear(message);
  }
}

class Row {
  constructor(acts, task) {
    this.acts = acts;
    this.id = task.id;
    this.what = make("div", { class: "g-what" });
    this.who = make("b", {});
    this.where = make("span", { class: "g-sub" });
    this.buttons = make("span", { class: "g-buttons" });
    this.below = make("div", {});
    this.root = make("div", { class: "g-task", "data-task": task.id }, make("div", { class: "g-line" }, make("div", {}, this.who, " ", this.where, this.what), this.buttons), this.below);
  }

  draw(task) {
    if (task === this.task) return;
    this.task = task;
    this.root.classList.toggle("g-kernel", task.kernel);
    say(this.who, task.kernel ? "this kernel" : `${task.node ? `${task.node} ` : ""}${task.pid}`);
    const age_s = secondsSince(task.since);
    say(this.where, [task.child ? "of this kernel" : "", `GPU ${task.gpus.join(", ")}`, ...(task.isGone ? ["no longer there"] : [size(task.mem), task.sm === null ? "" : `${Math.round(task.sm)} % SM`, task.state ?? "", age_s === null ? "" : age(age_s)])].filter(Boolean).join(" · "));
    say(this.what, task.command ?? "command line unknown");
    this.what.title = task.command ?? "";
    const fitting = task.kernel ? [] : IN_ROWS.filter((row) => isFit(row, task));
    const wanted = fitting.map(({ id }) => id).join(" ");
    if (this.buttons.dataset.wanted !== wanted && !this.dialog) {
      this.buttons.dataset.wanted = wanted;
      this.buttons.replaceChildren(...fitting.map(({ id, label, is_kill: isKill }) =>
        make("button", { type: "button", class: isKill ? "g-bad" : "", "data-action": id, onclick: () => this.begin(id) }, label)));
    }
  }

  begin(action) {
    this.dialog?.close();
    this.buttons.hidden = true;
    this.dialog = new Dialog(this, action);
    this.below.replaceChildren(this.dialog.root);
  }

  ended() {
    this.dialog = undefined;
    this.below.replaceChildren();
    this.buttons.dataset.wanted = "?";
    this.buttons.hidden = false;
  }
}

class Dialog {
  constructor(row, action) {
    this.row = row;
    this.action = action;
    this.askId = fresh();
    this.said = make("p", { class: "g-said", role: "status" }, "Checking affected tasks …");
    this.busy = make("p", { class: "g-sub" });
    this.facts = make("div", {});
    this.form = make("div", {});
    this.root = make("div", { class: "g-dialog", role: "group", "aria-label": `${verb(action)} this task` }, this.facts, this.said, this.busy, this.form,
      make("button", { type: "button", class: "g-plain", onclick: () => this.close() }, "Close"));
    this.wait();
    row.acts.ask(this, { kind: "look", ask: this.askId, action, task: row.id });
  }

  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => say(this.busy, this.row.acts.isFed() ? BUSY : "The kernel is not responding."), PATIENCE_MS);
  }

  close() {
    clearTimeout(this.timer);
    this.row.acts.open.delete(this.askId);
    this.row.ended();
  }

  hear(message) {
    clearTimeout(this.timer);
    say(this.busy, "");
    if (message.kind === "shown") this.shown(message.preview);
    else if (message.kind === "sorry") this.sorry(message.sentence);
    else for (const command of message.commands ?? [message.command]) this.told(command);
  }

  sorry(sentence) {
    this.form.replaceChildren(make("button", { type: "button", class: "g-plain", onclick: () => this.row.begin(this.action) }, "Refresh"));
    this.root.classList.add("g-refused");
    say(this.said, sentence);
  }

  shown({ items }) {
    this.facts.replaceChildren(...items.map(about));
    const refusals = items.flatMap((item) => item.refusals);
    if (refusals.length > 0) {
      this.sorry(`Refused: ${refusals.map(({ sentence }) => sentence).join(" ")}`);
      return;
    }
    say(this.said, "");
    const reason = make("input", { type: "text", placeholder: "why? (saved in the audit log)", "aria-label": "Reason", maxlength: "500" });
    const go = make("button", { type: "button", class: ROWS.get(this.action).is_kill ? "g-bad" : "", disabled: "", "data-go": this.action }, `${verb(this.action)} it`);
    reason.addEventListener("input", () => { go.disabled = reason.value.trim() === ""; });
    // Notebooks take keys for themselves: what is typed here is ours.
    reason.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" && !go.disabled) go.click();
    });
    go.addEventListener("click", () => this.order(reason.value.trim()));
    this.form.replaceChildren(reason, go);
    reason.focus({ preventScroll: true });
  }

  order(reason) {
    this.form.replaceChildren();
    say(this.said, "Requested …");
    this.wait();
    this.row.acts.ask(this, { kind: "order", ask: this.askId, reason });
  }

  told(command) {
    this.root.dataset.outcome = command.state;
    say(this.said, command.sentence || command.step || command.state);
    if (!isOpen(command)) this.root.classList.toggle("g-refused", command.state !== "done");
  }
}

function about(item) {
  const beside = item.bystanders.length === 0 ? "No other task uses these GPUs." : `${plural(item.bystanders.length, "other task")} on its GPUs, unaffected: ${item.bystanders.map(({ user, command }) => `${user ?? "unknown user"} ${(command ?? "").slice(0, 60)}`).join("; ")}`;
  return make("div", { class: "g-about" },
    make("p", {}, make("b", {}, item.owner ?? "unknown owner"), ` on ${item.host}, ${plural(item.processes.length, "process", "processes")}, ${size(item.mem_used_bytes)}, ${item.age_s === null ? "age unknown" : `${age(item.age_s)} old`}`),
    make("p", { class: "g-sub" }, item.processes.slice(0, 6).map(({ pid, command }) => `${pid} ${(command ?? "unknown").slice(0, 90)}`).join("\n") + (item.processes.length > 6 ? `\nand ${item.processes.length - 6} more` : "")),
    make("p", {}, beside), ...item.warnings.map((warning) => make("p", { class: "g-warning" }, warning)));
}
