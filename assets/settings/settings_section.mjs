// What the sections of Settings share: looking, saying that it failed, and doing.

import { make, say, show } from "../parts/dom.mjs";
import { ask, choiceField, sentence, textField } from "../parts/dialog.mjs";
import { moment, when } from "../parts/format.mjs";
import { toast } from "../parts/toast.mjs";

export const ROLES = [
  ["viewer", "viewer: looks"],
  ["user", "user: acts on their own tasks"],
  ["operator", "operator: acts on everyone's tasks"],
  ["admin", "admin: people, programs and nodes too"],
];

export class Section {
  constructor(root, person) {
    Object.assign(this, { root, person });
    this.place = root.querySelector(".section-place");
    this.problem = make("p", { class: "problem", role: "alert", hidden: "" });
    this.place.append(this.problem);
  }

  everyMs() {
    return 10_000;
  }

  /** `fill` of the section gets what it shows; it says itself what is wrong. */
  async look() {
    try {
      await this.fill();
      show(this.problem, false);
    } catch (error) {
      say(this.problem, `This list is not up to date: ${sentence(error.message)}`);
      show(this.problem, true);
    }
  }

  /** For what has no dialog of its own in which it could fail. */
  async attempt(act, done) {
    try {
      await act();
      toast(done);
    } catch (error) {
      toast(sentence(error.message));
    }
    await this.look();
  }

  async asked(question) {
    const answer = await ask(question);
    await this.look();
    return answer;
  }

  onClick(id, act) {
    this.root.querySelector(`#${id}`).addEventListener("click", act);
  }
}

export function timeCell(of, never) {
  return (cell, item) => {
    const at = of(item);
    say(cell, when(at, never));
    cell.title = at === null || at === undefined ? "" : moment(at);
  };
}

export function scopeFields(groups = ["*"], unixNames = []) {
  return [
    textField("groups", "Node groups", { value: groups.join(", "), required: "" }, "Commas between them; * is all of them. Nothing of other nodes is shown."),
    textField("unix_names", "Unix names", { value: unixNames.join(", ") }, "Whose tasks are their own; commas between them. Often none, or one."),
  ];
}

export const roleField = (role) => choiceField("role", "Role", ROLES, role);

export function scopeOf(given) {
  return { groups: words(given.get("groups")), unix_names: words(given.get("unix_names")) };
}

const words = (text) => text.split(",").map((word) => word.trim()).filter((word) => word !== "");

export const groupWords = (groups) => (groups.includes("*") ? "all nodes" : groups.join(", "));
