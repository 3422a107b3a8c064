// Settings: teams, whose owners share a bill in reports.

import { look } from "../parts/api.mjs";
import { textField } from "../parts/dialog.mjs";
import { change } from "../parts/password_prompt.mjs";
import { Section } from "./settings_section.mjs";

const LISTS = [["users", "Unix names", "ann bob"], ["groups", "Unix groups", "vision"], ["patterns", "Patterns", "lab3-*"]];
const words = (text) => [...new Set(text.split(/[\s,]+/).filter((word) => word !== ""))];

export class Teams extends Section {
  path = "teams";

  constructor(root, page) {
    super(root, page);
    this.rows = this.table({
      label: "Teams", key: ({ name }) => name, empty: "No teams yet. Reports by team show every owner without one.",
      columns: [
        { head: "Team", text: ({ name }) => name },
        { head: "Owners by", text: (team) => LISTS.flatMap(([key]) => team[key] ?? []).join(", ") || "nobody" },
        { head: "Price per GPU-hour", text: ({ price_gpu_hour: price }) => (price === undefined || price === null ? "that of the report" : String(price)) },
      ],
      actions: (one) => [
        ["Edit", () => this.edit(one), { "aria-label": `Edit the team ${one.name}` }],
        ["Remove", () => this.remove(one), { "aria-label": `Remove the team ${one.name}` }],
      ],
    });
    this.onClick("add-team", () => this.edit(null));
  }

  edit(one) {
    return this.asked({
      title: one === null ? "Add a team" : `Team ${one.name}`, verb: "Save",
      fields: [
        ...(one === null ? [textField("name", "Name", { required: "", maxlength: "64" })] : []),
        ...LISTS.map(([key, label, example]) => textField(key, label, { maxlength: "4000", placeholder: example, value: (one?.[key] ?? []).join(" ") }, key === "patterns" ? "Names decide before groups, and groups before patterns." : undefined)),
        textField("price", "Price per GPU-hour", { maxlength: "12", inputmode: "decimal", value: one?.price_gpu_hour ?? "" }, "Empty: the price set in the report."),
      ],
      submit: (given) => write(one?.name ?? given.get("name").trim(), teamOf(one?.name ?? given.get("name").trim(), given)),
    });
  }

  remove({ name }) {
    return this.sure(`Remove the team ${name}`, "Remove", "Its owners then belong to no team, in past reports too.", () => write(name, null));
  }
}

function teamOf(name, given) {
  const price = given.get("price").trim();
  if (price !== "" && !(Number(price) >= 0)) throw new Error("the price is a number such as 2.5");
  return { name, ...Object.fromEntries(LISTS.map(([key]) => [key, words(given.get(key))])), ...(price === "" ? {} : { price_gpu_hour: Number(price) }) };
}

// The table is written whole, so what somebody else has changed meanwhile is looked up first.
async function write(name, team) {
  const { items } = await look("teams");
  const others = items.filter(({ name: own }) => own !== name);
  const at = items.findIndex(({ name: own }) => own === name);
  await change("PUT", "teams", { items: team === null ? others : at === -1 ? [...others, team] : items.toSpliced(at, 1, team) });
}
