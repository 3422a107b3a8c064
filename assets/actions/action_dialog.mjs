// Dialog of an action, from the preview to the outcome. Bound to the ids it was opened with; a person
// confirms the preview that is shown, while it is valid.

/** @import { CommandStore } from "./commands_store.mjs" */

import { ApiError, send } from "../parts/api.mjs";
import {
  buttonWords,
  countWords,
  idsOf,
  isOpen,
  isPossible,
  lastWords,
  phrase,
  rowOf,
  undoOf,
  verb,
} from "./action_words.mjs";
import { itemCard, namesOf } from "./action_items.mjs";
import { paramForm } from "./action_params.mjs";
import { Progress } from "./action_progress.mjs";
import { open, sentence, textField } from "../parts/dialog.mjs";
import { make, messageOf, say, show, within } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";

const STALE = "urn:gpudeck:problem:stale";
const SETTLE_MS = 500;
// Nobody has read anything in less; a second click of a double click falls here.
const READ_MS = 350;

/** @type {(field: HTMLElement) => HTMLInputElement} */
const inputIn = (field) => within(field, "input");

export class ActDialog {
  /** @type {Hub.PreviewView | null} */
  preview = null;
  /** @type {Map<string, Progress>} */
  progress = new Map();
  /** @type {number | undefined} */
  settling;
  /** @type {((event: CustomEvent<Hub.CommandView | null>) => void) | undefined} */
  onChange;

  /**
   * `form`: of a setting; written_acts.mjs makes it. `order(asked)`: how what was looked at is
   * ordered, if not as a person's own; `lead`: who asks for it, then.
   * @param {CommandStore} store
   * @param {string} action
   * @param {string[]} ids
   * @param {Spot | null} from
   * @param {ActionForm | null} form
   * @param {SendOrder} order
   * @param {string | null} lead
   */
  constructor(
    store,
    action,
    ids,
    from,
    form = null,
    order = (asked) => send("POST", "commands", asked),
    lead = null,
  ) {
    this.store = store;
    this.action = action;
    this.ids = ids;
    this.from = from;
    this.form = form ?? paramForm(action);
    this.isSetting = form !== null;
    this.about = form?.about ?? [];
    this.order = order;
    this.lead = lead;
    this.isBusy = false;
    this.lookNumber = 0;
    this.shownAt = -Infinity;
    this.place = make(
      "div",
      { "class": "act-place", "tabindex": "0", "role": "region", "aria-label": "Affected tasks" },
      make("p", { class: "act-waiting", role: "status" }, "Checking on the node …"),
    );
    this.reason = textField(
      "reason",
      this.isReasonNeeded() ? "Reason" : "Reason (optional)",
      { "maxlength": "500", "aria-required": String(this.isReasonNeeded()) },
      "Saved in the audit log and shown to the owner.",
    );
    this.password = textField(
      "password",
      "Your password",
      { type: "password", autocomplete: "current-password" },
      "This affects someone else's job. Your password stays confirmed for five minutes.",
    );
    this.typed = textField("typed", "Type", {}, "Required because more than one job is affected.");
    this.despite = make(
      "label",
      { class: "act-second act-despite" },
      make("input", { type: "checkbox", name: "despite" }),
      " This node is in maintenance, people may be working on it. Proceed anyway.",
    );
    this.problem = make("p", { class: "problem", role: "alert", hidden: "" });
    this.clock = make("span", { class: "act-clock" });
    this.why = make("span", { class: "act-why", id: "act-why" });
    this.again = make(
      "button",
      { type: "button", class: "button", onclick: () => this.look() },
      "Refresh",
    );
    this.cancel = make(
      "button",
      { type: "button", class: "button", onclick: () => this.dialog.close() },
      "Cancel",
    );
    // No submit button: Enter in a field must not end a task.
    this.yes = make(
      "button",
      {
        "type": "button",
        "class": `button ${rowOf(this.action).is_kill ? "danger" : "first"}`,
        "disabled": "",
        "aria-describedby": "act-why",
        "onclick": () => this.confirm(),
      },
      verb(this.action),
    );
    this.foot = make(
      "div",
      { class: "dialog-foot act-foot" },
      this.clock,
      this.why,
      this.again,
      this.cancel,
      this.yes,
    );
    this.asked = make(
      "div",
      { class: "act-asked" },
      ...this.form.fields(() => this.changed()),
      this.reason,
      this.typed,
      this.despite,
      this.password,
    );
    this.root = /** @type {NamedForm} */ (
      make(
        "form",
        { class: "act-body", onsubmit: (event) => event.preventDefault() },
        ...(this.lead === null ? [] : [make("p", { class: "act-lead" }, this.lead)]),
        ...namesOf(this.about),
        this.place,
        this.asked,
        this.problem,
        this.foot,
      )
    );
    show(this.typed, false);
    show(this.despite, false);
    show(this.password, false);
    show(this.again, false);
    for (const name of ["input", "change"]) this.root.addEventListener(name, () => this.drawYes());
    this.dialog = open(
      this.form.title ??
        `${verb(action)}${action === "terminate_client" ? ": " : " "}${ids.length === 1 ? "a task" : plural(ids.length, "task")}`,
      this.root,
      () => this.closed(),
    );
    this.dialog.classList.add("act-dialog");
    this.dialog.dataset.targets = JSON.stringify(ids);
    (rowOf(this.action).only_tells
      ? this.root.elements.text
      : this.isSetting
        ? within(this.asked, "input, select")
        : this.root.elements.reason
    ).focus();
    this.timer = setInterval(() => this.tick(), 250);
    this.look();
  }

  isReasonNeeded() {
    return rowOf(this.action).is_harmful;
  }

  /** @type {(field: HTMLElement) => string} */
  value(field) {
    return inputIn(field).value.trim();
  }

  changed() {
    clearTimeout(this.settling);
    this.preview = null;
    this.drawYes();
    this.settling = setTimeout(() => this.look(), SETTLE_MS);
  }

  async look() {
    const number = (this.lookNumber += 1);
    clearTimeout(this.settling);
    this.preview = null;
    this.drawYes();
    this.fail(null);
    say(this.clock, "Checking on the node …");
    const params = this.form.read(this.root);
    if (params === null) {
      say(this.clock, "");
      this.place.replaceChildren(
        make(
          "p",
          { class: "act-waiting" },
          "Choose a value to see a preview. Nothing changes until you confirm.",
        ),
        ...(this.form.caution ? [make("p", { class: "act-warning" }, this.form.caution)] : []),
      );
      return;
    }
    try {
      const preview = await send("POST", "previews", {
        action: this.action,
        targets: this.ids,
        params,
      });
      if (number === this.lookNumber) this.show(preview);
    } catch (error) {
      if (number === this.lookNumber) this.failLook(error);
    }
  }

  /** @type {(error: unknown) => void} */
  failLook(error) {
    show(this.asked, true);
    this.fail(messageOf(error));
    show(this.again, true);
    say(this.clock, "");
    this.place.querySelector(".act-waiting")?.remove();
  }

  /** @type {(words: string | null) => void} */
  fail(words) {
    show(this.problem, words !== null);
    if (words !== null) say(this.problem, sentence(words));
  }

  /** @type {(preview: Hub.PreviewView) => void} */
  show(preview) {
    this.preview = preview;
    this.shownAt = performance.now();
    const { scrollTop } = this.place;
    const left = countWords(preview.items);
    this.place.replaceChildren(
      ...(left === "" ? [] : [make("p", { class: "act-left-out" }, left)]),
      ...preview.items.map((item) => itemCard(item, this.ids, this.about.length > 0)),
      ...(this.count() === 0
        ? []
        : [make("p", { class: "act-last-words" }, lastWords(this.action, preview.params ?? {}))]),
    );
    this.place.scrollTop = scrollTop;
    if (preview.needs?.second_person)
      this.place.append(
        make(
          "p",
          { class: "act-second" },
          "More than three jobs: another operator has to review and approve this within ten minutes.",
        ),
      );
    const typedPhrase = this.phrase();
    show(this.typed, typedPhrase !== null);
    if (typedPhrase !== null) say(within(this.typed, "label"), `Type “${typedPhrase}”`);
    show(this.despite, Boolean(preview.needs?.maintenance));
    inputIn(this.despite).checked = false;
    show(this.password, Boolean(preview.needs?.fresh));
    this.showAsked(this.count() > 0 || this.isSetting);
    show(this.yes, this.count() > 0 || this.isSetting);
    this.tick();
  }

  /**
   * Shows what is asked; where there is nothing to ask, what had the focus must not take it away from the dialog.
   * @type {(isShown: boolean) => void}
   */
  showAsked(isShown) {
    const hadFocus = this.asked.contains(document.activeElement);
    show(this.asked, isShown);
    if (hadFocus && !isShown) this.cancel.focus();
  }

  count() {
    return this.preview === null ? 0 : this.preview.items.filter(isPossible).length;
  }

  phrase() {
    return phrase(this.action, this.count());
  }

  secondsLeft() {
    return this.preview === null ? 0 : this.preview.expires_at - Date.now() / 1000;
  }

  tick() {
    if (this.progress.size > 0) return;
    if (this.preview !== null) {
      const left = Math.min(60, Math.ceil(this.secondsLeft()));
      say(
        this.clock,
        this.count() === 0 ? "" : left > 0 ? `Preview valid for ${left} s` : "Preview expired",
      );
      this.clock.classList.toggle("over", left <= 0);
      show(this.again, left <= 20 || this.count() === 0);
    }
    this.drawYes();
  }

  drawYes() {
    const { preview } = this;
    say(this.yes, preview === null ? verb(this.action) : buttonWords(preview));
    const missing = this.missing();
    say(this.why, missing ?? "");
    const isReady =
      missing === null &&
      preview !== null &&
      this.count() > 0 &&
      !this.isBusy &&
      performance.now() - this.shownAt > READ_MS;
    if (this.yes.disabled !== !isReady) {
      if (isReady) this.moveAway();
      this.yes.disabled = !isReady;
    }
  }

  /**
   * Returns what is still missing before the button works; null: nothing.
   * @type {() => string | null}
   */
  missing() {
    if (this.preview === null || this.count() === 0 || this.progress.size > 0) return null;
    if (this.secondsLeft() <= 0) return "Refresh the preview first";
    if (!this.form.isFilled(this.root)) return "Enter a value";
    if (this.isReasonNeeded() && this.value(this.reason) === "") return "Add a reason";
    if (!this.typed.hidden && this.value(this.typed).toLowerCase() !== this.phrase())
      return `Type “${this.phrase()}”`;
    if (!this.despite.hidden && !inputIn(this.despite).checked) return "Tick “Proceed anyway”";
    return !this.password.hidden && this.value(this.password) === "" ? "Enter your password" : null;
  }

  // It must never come alive under a resting pointer.
  moveAway() {
    if (this.from === null) return;
    const at = this.yes.getBoundingClientRect();
    const isUnder =
      this.from.x >= at.left - 8 &&
      this.from.x <= at.right + 8 &&
      this.from.y >= at.top - 8 &&
      this.from.y <= at.bottom + 8;
    if (isUnder) this.foot.classList.toggle("turned");
  }

  async confirm() {
    const { preview } = this;
    if (preview === null || this.isBusy || this.yes.disabled) return;
    this.isBusy = true;
    this.drawYes();
    this.fail(null);
    try {
      if (!this.password.hidden)
        await send("POST", "fresh", { password: inputIn(this.password).value });
      this.follow(
        await this.order({
          preview: preview.id,
          reason: this.value(this.reason),
          ...(this.despite.hidden ? {} : { despite_maintenance: true }),
        }),
      );
    } catch (error) {
      const { type, status } = error instanceof ApiError ? error : { type: "", status: 0 };
      if (type === STALE) {
        show(this.password, true);
        inputIn(this.password).focus();
      }
      this.fail(messageOf(error));
      // A preview is good for one attempt; a password that was wrong has not used it up.
      if ([404, 409, 410].includes(status)) {
        this.preview = null;
        show(this.again, true);
        say(this.clock, "");
      }
    } finally {
      this.isBusy = false;
      this.drawYes();
    }
  }

  /** @type {(result: Hub.OrderResultView) => void} */
  follow({ items, plan }) {
    clearInterval(this.timer);
    this.store.begin(items);
    this.store.lookAtPlans();
    const list = make("ul", { class: "acts" });
    for (const command of items) {
      const progress = new Progress(this.store.commands.get(command.id) ?? command, (one) =>
        this.more(one),
      );
      this.progress.set(command.id, progress);
      list.append(progress.root);
    }
    const waits =
      plan === null || plan === undefined
        ? []
        : [
            make(
              "p",
              { class: "act-second", role: "status" },
              "Waiting for a second person. Another operator can approve this within ten minutes, under “Actions” at the bottom of every page.",
            ),
          ];
    const isOneAsk = items.length === 0 && waits.length === 0;
    this.place.replaceChildren(
      ...waits,
      list,
      ...(isOneAsk ? [make("p", {}, "Nothing was sent.")] : []),
    );
    show(this.asked, false);
    show(this.again, false);
    show(this.yes, false);
    say(this.why, "");
    const drawClock = () =>
      say(
        this.clock,
        items.some(({ id }) => isOpen(this.store.commands.get(id) ?? { state: "requested" }))
          ? "It continues if you close this."
          : "",
      );
    drawClock();
    say(this.cancel, "Close");
    this.cancel.focus();
    this.onChange = ({ detail }) => {
      if (detail !== null) this.progress.get(detail.id)?.draw(detail);
      drawClock();
    };
    this.store.addEventListener("change", this.onChange);
  }

  /** @type {(command: Hub.CommandView) => CommandAct[]} */
  more(command) {
    return undoOf(command).map(([action, word]) => [
      word,
      (one) => {
        const undo = () => new ActDialog(this.store, action, idsOf(one), null);
        this.dialog.addEventListener("close", undo, { once: true });
        this.dialog.close();
      },
    ]);
  }

  closed() {
    clearInterval(this.timer);
    clearTimeout(this.settling);
    this.lookNumber = -1;
    if (this.onChange) this.store.removeEventListener("change", this.onChange);
  }
}
