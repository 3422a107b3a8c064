// What the sections of Settings share: looking, saying that it failed, and doing.

import { look } from "../parts/api.mjs";
import { make } from "../parts/dom.mjs";
import { choiceField, sentence, textField } from "../parts/dialog.mjs";
import { Looker } from "../parts/looker.mjs";
import { Rows } from "../parts/rows.mjs";
import { toast } from "../parts/toast.mjs";

export const ROLES = [
  ["viewer", "viewer: read-only"],
  ["user", "user: can act on their own tasks"],
  ["operator", "operator: can act on everyone's tasks"],
  ["admin", "admin: also manages users, tokens and nodes"],
];

export class Section extends Looker {
  constructor(root, { person, live }, everyMs = 10_000) {
    super(live, everyMs, { problem: make("p", { class: "problem", role: "alert", hidden: "" }), what: "list" });
    Object.assign(this, { root, person, place: root.querySelector(".section-place") });
    this.place.append(this.problem);
  }

  get isSeen() { return super.isSeen && !this.root.hidden; }

  /** A table of it, as `Rows` wants it. */
  table(traits) {
    const rows = new Rows(traits);
    this.place.append(rows.root);
    return rows;
  }

  /** One list of that path, where a section asks for no more. */
  ask() { return look(this.path); }

  take({ items }) { this.rows.update(items); }

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

  onClick(id, act) {
    this.root.querySelector(`#${id}`).addEventListener("click", act);
  }
}

export function scopeFields(groups = ["*"], unixNames = []) {
  return [
    textField("groups", "Node groups", { value: groups.join(", "), required: "" }, "Separated by commas; * means all. Other nodes are not visible."),
    textField("unix_names", "Unix names", { value: unixNames.join(", ") }, "Tasks of these Unix users count as their own; separated by commas. Often none or one."),
  ];
}

export const roleField = (role) => choiceField("role", "Role", ROLES, role);

export function scopeOf(given) {
  return { groups: words(given.get("groups")), unix_names: words(given.get("unix_names")) };
}

const words = (text) => text.split(",").map((word) => word.trim()).filter((word) => word !== "");

export const groupWords = (groups) => (groups.includes("*") ? "all nodes" : groups.join(", "));
