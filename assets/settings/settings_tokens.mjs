// Settings: what programs show to come in.

import { choiceField, copyable, tell, textField } from "../parts/dialog.mjs";
import { make } from "../parts/dom.mjs";
import { moment } from "../parts/format.mjs";
import { change } from "../parts/password_prompt.mjs";
import { parts, timeCell } from "../parts/rows.mjs";
import { DAY_S, nowS } from "../parts/time_ranges.mjs";
import { Section, groupWords, roleField, scopeFields, scopeOf } from "./settings_section.mjs";

const LASTS = [["1", "1 day"], ["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["365", "1 year"]];

export class Tokens extends Section {
  path = "tokens";

  constructor(root, page) {
    super(root, page);
    this.rows = this.table({
      label: "API tokens", key: ({ id }) => id, empty: "No tokens yet. Scripts, notebooks and dashboards need one to use the hub's API.",
      columns: [
        { head: "Name", draw: (cell, token) => parts(cell, ["strong", "name", token.name], token.expires_at * 1000 < Date.now() ? ["span", "pill lost", "expired"] : null) },
        { head: "Role", text: ({ role }) => role },
        { head: "Sees", text: ({ groups }) => groupWords(groups) },
        { head: "Created", draw: (cell, token) => { timeCell((one) => one.created_at)(cell, token); cell.append(` by ${token.created_by}`); } },
        { head: "Expires", draw: timeCell((token) => token.expires_at) },
        { head: "Last used", draw: timeCell((token) => token.last_used_at, "never") },
      ],
      actions: (token) => [["Revoke", () => this.revoke(token), { "aria-label": `Revoke ${token.name}` }]],
    });
    this.onClick("add-token", () => this.add());
  }

  async add() {
    const made = await this.asked({
      title: "Create a token", verb: "Create",
      fields: [
        textField("name", "Purpose", { required: "", maxlength: "128", placeholder: "grafana" }),
        roleField("viewer"), choiceField("days", "Valid for", LASTS, "90"), ...scopeFields(),
      ],
      submit: (given) => change("POST", "tokens", {
        name: given.get("name").trim(), role: given.get("role"), ...scopeOf(given),
        expires_at: Math.floor(nowS()) + Number(given.get("days")) * DAY_S,
      }),
    });
    if (made !== null) showSecret(made);
  }

  revoke(token) {
    return this.sure(`Revoke ${token.name}?`, "Revoke", "Programs using it lose access within a second. This cannot be undone.",
      () => change("DELETE", `tokens/${encodeURIComponent(token.id)}`));
  }
}

function showSecret({ name, secret, expires_at: until }) {
  const example = `curl -H "Authorization: Bearer $TOKEN" ${location.origin}/api/v1/gpus`;
  tell(`Token “${name}”`,
    make("p", {}, `Shown only once: the hub stores only its hash. Valid until ${moment(until)}.`),
    copyable(secret, "the token"),
    make("p", {}, "Store it in a file that only your program can read. To try it:"),
    make("div", { class: "command" }, make("code", {}, example)));
}
