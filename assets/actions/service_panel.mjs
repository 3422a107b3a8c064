// Panel of service: whether a GPU or a node is in service, who took it out and why, how far its repair
// is, and the next steps.

import { begin } from "./actions.mjs";
import { verb } from "./action_words.mjs";
import { diagnoseForm, drainForm, serviceForm } from "./limit_forms.mjs";
import { SettingsPanel, sentenceOf } from "./limits_panel.mjs";
import { button, make } from "../parts/dom.mjs";
import { moment, plural } from "../parts/format.mjs";
import { note } from "../parts/panel.mjs";

const OF_ONE_GPU = new Set(["reset", "diagnose"]);
const IN_SERVICE = ["cordon", "drain"];
/** @type {Record<string, string>} */
const TONE = {
  cordoned: "stale",
  draining: "stale",
  drained: "ok",
  resetting: "stale",
  diagnosing: "stale",
  needs_reboot: "lost",
  needs_inspection: "lost",
};
/** @type {Record<string, [string, (uuid: string | null) => ActionForm]>} */
const ACTS = {
  cordon: ["cordon", (uuid) => serviceForm("Cordon: assign nothing new here", "cordon", uuid)],
  drain: ["drain", drainForm],
  reset: ["reset_gpu", (uuid) => serviceForm("Reset an empty GPU", "gpu_reset", uuid)],
  diagnose: ["diagnose_gpu", (uuid) => diagnoseForm(uuid)],
  return: ["return_to_service", (uuid) => serviceForm("Return it to service", "return", uuid)],
};

/** @extends {SettingsPanel<Hub.RepairView>} */
export class ServicePanel extends SettingsPanel {
  /**
   * `uuid` null: the whole node. `tasks()`: ids of those that are there now; `advice()`: what the
   * driver advises, "": nothing.
   * @param {string} node
   * @param {string | null} uuid
   * @param {() => string[]} tasks
   * @param {() => string} advice
   */
  constructor(node, uuid, tasks, advice = () => "") {
    super("service");
    this.node = node;
    this.uuid = uuid;
    this.tasks = tasks;
    this.advice = advice;
    this.path = "repairs";
  }

  /** @type {(items: Hub.RepairView[]) => void} */
  draw(items) {
    const own = items.find(({ gpu }) => gpu === this.uuid) ?? null;
    const ofNode = this.uuid === null ? null : (items.find(({ gpu }) => gpu === null) ?? null);
    const parts = this.uuid === null ? items.filter(({ gpu }) => gpu !== null) : [];
    const advice = this.advice();
    this.put(
      [advice, own, ofNode, parts, this.isOperator, own?.is_overdue ? this.tasks() : null],
      () =>
        [
          ...(advice === ""
            ? []
            : [
                make(
                  "p",
                  { class: "act-warning" },
                  `The driver advises: ${advice}. ${own === null ? "Draining starts the repair; the next steps are offered once no task is left." : ""}`,
                ),
              ]),
          ...(own === null && ofNode === null
            ? [
                note(
                  parts.length === 0
                    ? "In service."
                    : `In service, except ${plural(parts.length, "GPU")}: ${parts.map(({ index, says }) => `GPU ${index ?? "?"} ${says}`).join(", ")}.`,
                ),
              ]
            : []),
          ...(ofNode === null ? [] : [this.repair(ofNode, "The whole node: ", [])]),
          ...(own === null ? [] : [this.repair(own, "", own.may)]),
          ...(own === null ? [this.buttons(IN_SERVICE)] : []),
        ].filter((part) => part !== null),
    );
  }

  /** @type {(repair: Hub.RepairView, whose: string, may: string[]) => HTMLElement} */
  repair(repair, whose, may) {
    const why = repair.reason === "" ? "" : `: “${repair.reason}”`;
    const until =
      repair.until === null
        ? ""
        : repair.is_overdue
          ? ` The time ended at ${moment(repair.until)}.`
          : ` Owners have until ${moment(repair.until)}.`;
    return make(
      "div",
      { "class": "limit", "data-state": repair.state },
      make(
        "p",
        {},
        make("strong", {}, `${whose}Out of service`),
        " ",
        make("span", { class: `pill ${TONE[repair.state] ?? "stale"}` }, repair.says),
      ),
      note(
        `Since ${moment(repair.since)}, by ${repair.by}${why}.${until}${repair.seen === "" ? "" : ` ${sentenceOf(repair.seen)}`}`,
      ),
      this.buttons(may, repair),
    );
  }

  /** @type {(may: string[], repair?: Hub.RepairView | null) => HTMLElement | null} */
  buttons(may, repair = null) {
    const buttons = may
      .filter((event) => event in ACTS && (this.uuid !== null || !OF_ONE_GPU.has(event)))
      .map((event) => {
        const [action, makeForm] = ACTS[event];
        return this.button(verb(action), event, action, this.uuid ?? this.node, () =>
          makeForm(this.uuid),
        );
      });
    const left = repair?.is_overdue ? this.tasks() : [];
    // What a drain leaves is ended as anything is: previewed, by a person.
    if (left.length > 0)
      buttons.push(
        button(`End ${plural(left.length, "task")}`, () => begin("end", left), {
          "data-does": "end left",
        }),
      );
    return this.acts(...buttons);
  }
}
