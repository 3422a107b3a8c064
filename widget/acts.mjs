// The user's tasks, and their actions: preview, see what would be hit, give a reason, follow to the end.

/** @import { WidgetModel } from "./widget.mjs" */

import { ROWS } from "../assets/actions/action_table.mjs";
import { isFit, isOpen, rowOf, verb } from "../assets/actions/action_words.mjs";
import { Lines, make, say } from "../assets/parts/dom.mjs";
import { age, gibibytes, plural, secondsSince } from "../assets/parts/format.mjs";

const PATIENCE_MS = 2_000;
const MOST_LISTED = 6;
const IN_ROWS = [...ROWS.values()].filter((row) => row.in_rows);
const BUSY =
  "The kernel is busy with a cell and handles this when it is free (immediately with ipykernel 7 in JupyterLab 4.4 and later). A request more than a minute after its preview is refused.";

/** @type {(value: number | null | undefined) => string} */
const size = (value) =>
  value === null || value === undefined
    ? "memory unknown"
    : Object.values(gibibytes(value)).join(" ");
const newId = () => `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 12)}`;

export class Acts {
  /** Dialogs that wait for messages, by the id of their request. @type {Map<string, Dialog>} */
  open = new Map();

  /**
   * `isFed`: pictures still come, which they do while the kernel is at work.
   * @param {WidgetModel} model
   * @param {() => boolean} isFed
   */
  constructor(model, isFed) {
    this.model = model;
    this.isFed = isFed;
    const list = make("div", { class: "g-tasks" });
    /** @type {Lines<OwnTask, Row>} */
    this.rows = new Lines(
      list,
      ({ id }) => id,
      (task) => new Row(this, task),
      false,
    );
    this.empty = make("p", { class: "g-sub" });
    this.root = make(
      "section",
      { "class": "g-mine", "aria-label": "Your tasks" },
      make("h4", {}, "Your tasks"),
      this.empty,
      list,
    );
  }

  /** @type {(tasks: OwnTask[], empty: string) => void} */
  show(tasks, empty) {
    this.root.hidden = tasks.length === 0 && empty === "" && this.rows.byKey.size === 0;
    this.empty.hidden = tasks.length > 0;
    say(this.empty, empty);
    const here = new Set(tasks.map(({ id }) => id));
    // How an act ends is read after its task is gone.
    const readRows = [...this.rows.byKey.values()].filter(
      ({ id, dialog }) => dialog && !here.has(id),
    );
    this.rows.draw([...tasks, ...readRows.map(({ task }) => ({ ...task, isGone: true }))]);
  }

  /** @type {(dialog: Dialog, message: KernelRequest) => void} */
  ask(dialog, message) {
    this.open.set(message.ask, dialog);
    this.model.send(message);
  }

  /** @type {(message: KernelMessage) => void} */
  receive(message) {
    this.open.get(message?.ask)?.receive(message);
  }
}

class Row {
  /** @type {Dialog | null} */
  dialog = null;

  /**
   * @param {Acts} acts
   * @param {OwnTask} task
   */
  constructor(acts, task) {
    this.acts = acts;
    this.task = task;
    this.id = task.id;
    this.what = make("div", { class: "g-what" });
    this.who = make("b", {});
    this.where = make("span", { class: "g-sub" });
    this.buttons = make("span", { class: "g-buttons" });
    this.below = make("div", {});
    this.root = make(
      "div",
      { "class": "g-task", "data-task": task.id },
      make(
        "div",
        { class: "g-line" },
        make("div", {}, this.who, " ", this.where, this.what),
        this.buttons,
      ),
      this.below,
    );
  }

  /** @type {(task: OwnTask) => void} */
  draw(task) {
    this.task = task;
    this.root.classList.toggle("g-kernel", task.kernel);
    say(this.who, task.kernel ? "this kernel" : `${task.node ? `${task.node} ` : ""}${task.pid}`);
    const facts = [
      task.child ? "of this kernel" : "",
      `GPU ${task.gpus.join(", ")}`,
      ...(task.isGone ? ["no longer there"] : liveFacts(task)),
    ];
    say(this.where, facts.filter(Boolean).join(" · "));
    say(this.what, task.command ?? "command line unknown");
    this.what.title = task.command ?? "";
    const fitting = task.kernel ? [] : IN_ROWS.filter((row) => isFit(row, task));
    const actions = fitting.map(({ id }) => id).join(" ");
    if (this.buttons.dataset.actions !== actions && !this.dialog) {
      this.buttons.dataset.actions = actions;
      this.buttons.replaceChildren(
        ...fitting.map(({ id, label, is_kill: isKill }) =>
          make(
            "button",
            {
              "type": "button",
              "class": isKill ? "g-bad" : "",
              "data-action": id,
              "onclick": () => this.begin(id),
            },
            label,
          ),
        ),
      );
    }
  }

  /** @type {(action: string) => void} */
  begin(action) {
    this.dialog?.close();
    this.buttons.hidden = true;
    this.dialog = new Dialog(this, action);
    this.below.replaceChildren(this.dialog.root);
  }

  endDialog() {
    this.dialog = null;
    this.below.replaceChildren();
    this.buttons.dataset.actions = "?";
    this.buttons.hidden = false;
  }
}

/** @type {(task: OwnTask) => string[]} */
function liveFacts({ mem, sm, state, since }) {
  const ageS = secondsSince(since);
  return [
    size(mem),
    sm === null ? "" : `${Math.round(sm)} % SM`,
    state ?? "",
    ageS === null ? "" : age(ageS),
  ];
}

class Dialog {
  /** @type {number | undefined} */
  timer;

  /**
   * @param {Row} row
   * @param {string} action
   */
  constructor(row, action) {
    this.row = row;
    this.action = action;
    this.askId = newId();
    this.status = make("p", { class: "g-said", role: "status" }, "Checking affected tasks …");
    this.busy = make("p", { class: "g-sub" });
    this.facts = make("div", {});
    this.form = make("div", {});
    this.root = make(
      "div",
      { "class": "g-dialog", "role": "group", "aria-label": `${verb(action)} this task` },
      this.facts,
      this.status,
      this.busy,
      this.form,
      make("button", { type: "button", class: "g-plain", onclick: () => this.close() }, "Close"),
    );
    this.wait();
    row.acts.ask(this, { kind: "look", ask: this.askId, action, task: row.id });
  }

  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => say(this.busy, this.row.acts.isFed() ? BUSY : "The kernel is not responding."),
      PATIENCE_MS,
    );
  }

  close() {
    clearTimeout(this.timer);
    this.row.acts.open.delete(this.askId);
    this.row.endDialog();
  }

  /** @type {(message: KernelMessage) => void} */
  receive(message) {
    clearTimeout(this.timer);
    say(this.busy, "");
    if (message.kind === "shown") this.showPreview(message.preview);
    else if (message.kind === "sorry") this.fail(message.sentence);
    else if (message.kind === "told") this.showCommand(message.command);
    else for (const command of message.commands) this.showCommand(command);
  }

  /** @type {(sentence: string) => void} */
  fail(sentence) {
    this.form.replaceChildren(
      make(
        "button",
        { type: "button", class: "g-plain", onclick: () => this.row.begin(this.action) },
        "Refresh",
      ),
    );
    this.root.classList.add("g-refused");
    say(this.status, sentence);
  }

  /** @type {(preview: Hub.PreviewView) => void} */
  showPreview({ items }) {
    this.facts.replaceChildren(...items.map(itemElement));
    const refusals = items.flatMap((item) => item.refusals);
    if (refusals.length > 0) {
      this.fail(`Refused: ${refusals.map(({ sentence }) => sentence).join(" ")}`);
      return;
    }
    say(this.status, "");
    const reason = make("input", {
      "type": "text",
      "placeholder": "why? (saved in the audit log)",
      "aria-label": "Reason",
      "maxlength": "500",
    });
    const go = make(
      "button",
      {
        "type": "button",
        "class": rowOf(this.action).is_kill ? "g-bad" : "",
        "disabled": "",
        "data-go": this.action,
      },
      `${verb(this.action)} it`,
    );
    reason.addEventListener("input", () => {
      go.disabled = reason.value.trim() === "";
    });
    // Notebooks take keys for themselves: what is typed here is ours.
    reason.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter" && !go.disabled) go.click();
    });
    go.addEventListener("click", () => this.order(reason.value.trim()));
    this.form.replaceChildren(reason, go);
    reason.focus({ preventScroll: true });
  }

  /** @type {(reason: string) => void} */
  order(reason) {
    this.form.replaceChildren();
    say(this.status, "Requested …");
    this.wait();
    this.row.acts.ask(this, { kind: "order", ask: this.askId, reason });
  }

  /** @type {(command: Hub.CommandView) => void} */
  showCommand(command) {
    this.root.dataset.outcome = command.state;
    say(this.status, command.sentence || command.step || command.state);
    if (!isOpen(command)) this.root.classList.toggle("g-refused", command.state !== "done");
  }
}

/** @type {(item: Hub.PreviewItemView) => HTMLElement} */
function itemElement({
  owner,
  host,
  age_s: ageS,
  mem_used_bytes: bytes,
  processes,
  bystanders,
  warnings,
}) {
  const ageWords = ageS === null ? "age unknown" : `${age(ageS)} old`;
  const count = plural(processes.length, "process", "processes");
  const lines = processes
    .slice(0, MOST_LISTED)
    .map(({ pid, command }) => `${pid} ${(command ?? "unknown").slice(0, 90)}`);
  const more = processes.length > MOST_LISTED ? [`and ${processes.length - MOST_LISTED} more`] : [];
  return make(
    "div",
    { class: "g-about" },
    make(
      "p",
      {},
      make("b", {}, owner ?? "unknown owner"),
      ` on ${host}, ${count}, ${size(bytes)}, ${ageWords}`,
    ),
    make("p", { class: "g-sub" }, [...lines, ...more].join("\n")),
    make("p", {}, bystanderWords(bystanders)),
    ...warnings.map((warning) => make("p", { class: "g-warning" }, warning)),
  );
}

/** @type {(bystanders: Hub.BystanderView[]) => string} */
function bystanderWords(bystanders) {
  if (bystanders.length === 0) return "No other task uses these GPUs.";
  const names = bystanders.map(
    ({ user, command }) => `${user ?? "unknown user"} ${(command ?? "").slice(0, 60)}`,
  );
  return `${plural(bystanders.length, "other task")} on its GPUs, unaffected: ${names.join("; ")}`;
}
