// What the pages of Slurm and Kubernetes share: what is read, what is said above the tables, and the
// buttons for what a scheduler can be asked.

import { begin, pressed } from "../actions/actions.mjs";
import { form } from "../actions/limit_forms.mjs";
import { look } from "../parts/api.mjs";
import { sentence } from "../parts/dialog.mjs";
import { byId, keepFocus, make, redraw, say, sayOrHide, settle } from "../parts/dom.mjs";
import { moment, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";

const EVERY_MS = 10_000;
const SHOWN = 500;

/** Pages have `rows(cluster)`, its jobs or pods; `notes(cluster)`; and `tables(cluster, rows)`. */
export class SchedulerPage extends Looker {
  /** `key`: in addresses of pages and of the API, and before the names of its actions. */
  constructor(root, live, store, { key, name, thing, none }) {
    super(live, EVERY_MS, { problem: byId(`${key}-problem`), what: "page" });
    Object.assign(this, { root, key, name, thing, none });
    store.addEventListener("change", ({ detail }) => { if (detail?.state === "done") this.look(); });
    this.meet().then(() => this.look());
  }

  ask() { return look(this.key); }

  fail(error) {
    super.fail(error);
    settle(this.root);
  }

  take({ items, ignored }) {
    const { key } = this;
    const left = ignored.length === 0 ? "" : ` Ignored: ${ignored.join(", ")}, since the hub's setting ${key}_nodes does not name it.`;
    sayOrHide(byId(`${key}-none`), items.length === 0 ? `${this.none}${left}` : left.trim());
    const rows = items.flatMap((one) => this.rows(one));
    const idle = rows.reduce((sum, row) => sum + (row.without_process ?? 0), 0);
    say(byId(`${key}-words`), items.length === 0 ? "" : `${plural(rows.length, this.thing)} with GPUs or waiting for some; ${plural(idle, "GPU")} allocated without a process.`);
    const place = byId(`${key}-place`);
    keepFocus(place, () => redraw(place, [items, this.may("operator")], () => items.map((one) => this.cluster(one))));
    settle(this.root);
  }

  cluster(one) {
    const { name, thing } = this;
    const rows = this.rows(one);
    const notes = [
      one.is_stale ? `Not up to date: the last answer is of ${moment(one.taken_at)}.` : "",
      one.trouble === "" ? "" : `${name} cannot be read: ${sentence(one.trouble)}`,
      ...this.notes(one),
      one.actions.length === 0 ? `Read only: the ceiling of ${one.host} permits no action on ${name}.` : "",
      one.left_out > 0 ? `Not shown: ${plural(one.left_out, thing)} more.` : "",
      rows.length > SHOWN ? `The first ${SHOWN} of ${rows.length} ${thing}s.` : "",
    ].filter((words) => words !== "");
    return make("section", { class: "slurm-cluster", "data-node": one.node },
      make("h2", {}, this.title(one), " ", make("span", { class: "pill" }, `by ${one.host}${one.version === "" ? "" : `, ${name} ${one.version}`}`)),
      ...notes.map((words) => make("p", { class: "act-warning" }, words)),
      ...this.tables(one, rows.slice(0, SHOWN)));
  }

  /** `owners`: what those may who are no operators. `fields(verb)`: of its form, and what they add. */
  acts(cluster, may, target, what, owners = [], fields = () => [[], () => ({})]) {
    const verbs = may.filter((verb) => cluster.actions.includes(`${this.key}_${verb}`) && (this.may("operator") || owners.includes(verb)));
    return make("td", { class: "slurm-acts" }, ...verbs.map((verb) => this.button(cluster.node, verb, target, what, fields)));
  }

  button(node, verb, target, what, fields) {
    const type = `${this.key}_${verb}`;
    const label = verb[0].toUpperCase() + verb.slice(1);
    const isEnd = ["cancel", "delete"].includes(verb);
    const made = make("button", { type: "button", class: `button small${isEnd ? " danger" : ""}`, "data-act": type, "aria-label": `${label} ${what}` }, label);
    pressed(made, () => ({ clientX: x, clientY: y, detail }) => {
      const [inputs, read] = fields(verb);
      begin(type, [node], detail === 0 ? null : { x, y }, form(`${label} ${what} of ${this.name}`, inputs, ({ elements }) => {
        const more = read(elements);
        return more === null ? null : { type, ...target, ...more };
      }));
    });
    return made;
  }
}
