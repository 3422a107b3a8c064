// Settings: who is told when a rule fires, how each has been doing, and what still waits.

import { itemsOf, look, send } from "../parts/api.mjs";
import { areaField, checkField, choiceField, sentence, textField } from "../parts/dialog.mjs";
import { make, say, show } from "../parts/dom.mjs";
import { amount, moment, plural, when } from "../parts/format.mjs";
import { change } from "../parts/password_prompt.mjs";
import { stacked } from "../parts/rows.mjs";
import { Section } from "./settings_section.mjs";

const LEASTS = [["info", "all"], ["warn", "warning and critical"], ["crit", "critical only"]];
const NO_MAIL = "Mail is not set up: start the hub with --smtp-host and --smtp-from.";

export class Notices extends Section {
  constructor(root, page) {
    super(root, page);
    Object.assign(this, { items: [], kinds: [], hasMail: true, answers: new Map() });
    this.rows = this.table({
      label: "Receivers", key: ({ id }) => id, empty: "No receivers: alerts only appear on the Alerts page.",
      columns: [
        { head: "Receiver", draw: (cell, one) => stacked(cell, ["strong", "name", one.name], ["small", "", one.kind]) },
        { head: "To", draw: (cell, one) => stacked(cell, ["span", "", this.kindOf(one.kind).to_words || one.to], ["small", "", this.kindOf(one.kind).wants_words || wantsOf(one)]) },
        { head: "State", draw: (cell, one) => stacked(cell, ...stateOf(one, this.answers.get(one.id))) },
      ],
      actions: (one) => [
        ["Test", (it) => this.test(it), { "aria-label": `Test ${one.name}` }],
        ["Edit", (it) => this.edit(it), { "aria-label": `Edit ${one.name}` }],
        ["Remove", (it) => this.remove(it), { "aria-label": `Remove ${one.name}` }],
      ],
    });
    this.place.append(make("h3", { class: "section-more" }, "Not delivered yet"));
    this.waiting = this.table({
      label: "Waiting notifications", key: ({ id }) => id, empty: "All notifications delivered.",
      columns: [
        { head: "Notification", draw: (cell, one) => stacked(cell, ["span", "", one.title], ["small", "", `for ${this.nameOf(one.receiver)}, ${when(one.at)}`, moment(one.at)]) },
        { head: "State", draw: (cell, one) => stacked(cell, ...waitingOf(one)) },
      ],
      actions: (one) => [
        ["Try again", (it) => this.retry(it), { "aria-label": `Try again: ${one.title}` }],
        ["Drop", (it) => this.drop(it), { "aria-label": `Drop: ${one.title}` }],
      ],
    });
    this.muted = make("p", { class: "none" });
    this.place.append(this.muted);
    this.onClick("add-receiver", () => this.edit(null));
  }

  ask() {
    return Promise.all([look("receivers"), look("notices")]);
  }

  take([receivers, waiting]) {
    Object.assign(this, { items: receivers.items, kinds: receivers.kinds, hasMail: receivers.has_mail });
    this.rows.update(receivers.items);
    this.waiting.update(waiting.items);
    const more = waiting.total - waiting.items.length;
    const words = [more > 0 ? `${amount(more)} more waiting.` : "", receivers.muted > 0 ? receivers.muted === 1 ? "1 alert was silenced or suppressed until it was resolved; no notification was sent." : `${amount(receivers.muted)} alerts were silenced or suppressed until they were resolved; no notifications were sent.` : ""];
    say(this.muted, words.filter(Boolean).join(" "));
    show(this.muted, this.muted.textContent !== "");
  }

  /** A row of the hub's table of channels. */
  kindOf(name) {
    return this.kinds.find(({ kind }) => kind === name);
  }

  nameOf(id) {
    return this.items.find((one) => one.id === id)?.name ?? "a removed receiver";
  }

  async edit(one) {
    if (this.kinds.length === 0) this.take(await this.ask());
    const rules = (await itemsOf("rules", [])).map(({ rule }) => rule.id);
    await this.asked({
      title: one === null ? "Add a receiver" : one.name, verb: one === null ? "Add" : "Save",
      fields: receiverFields(one, rules, this.kinds),
      submit: (given) => this.save(one, given),
      opened: (form) => followKind(form, one, (name) => this.kindOf(name), this.hasMail),
    });
  }

  save(one, given) {
    const kind = one?.kind ?? given.get("kind");
    const { destination } = this.kindOf(kind);
    const text = (name) => String(given.get(name) ?? "").trim();
    const body = {
      name: text("name"), kind, least: text("least") || "warn", is_on: given.get("is_on") !== null,
      to: destination === "url" ? text("url") : destination === "addresses" ? text("mails") : "", rules: text("rules").split(/[\s,]+/).filter(Boolean),
      ...(destination === "url" ? { token: text("token"), token_file: text("token_file") } : {}),
      ...(this.kindOf(kind).has_template ? { template: text("template"), headers: headersOf(text("headers")) } : {}),
    };
    return one === null ? change("POST", "receivers", body) : change("PUT", `receivers/${encodeURIComponent(one.id)}`, body);
  }

  async test(one) {
    this.answers.set(one.id, { words: "Sending a test …", tone: "" });
    this.rows.update(this.items);
    try {
      const { is_taken: isTaken, words } = await change("POST", `receivers/${encodeURIComponent(one.id)}/test`);
      this.answers.set(one.id, { words: `Test ${isTaken ? "delivered" : "not delivered"}: ${words}`, tone: isTaken ? "ok" : "lost" });
    } catch (error) {
      this.answers.set(one.id, { words: sentence(error.message), tone: "lost" });
    }
    this.rows.update(this.items);
  }

  remove({ id, name, waiting, parked }) {
    const [count, isOne] = [waiting + parked, waiting + parked === 1];
    const lead = count > 0 ? `${plural(count, "waiting notification")} ${isOne ? "is" : "are"} dropped.` : "No more notifications are sent there.";
    return this.sure(`Remove ${name}`, "Remove", lead, () => change("DELETE", `receivers/${encodeURIComponent(id)}`));
  }

  retry(one) {
    return this.attempt(() => send("POST", `notices/${encodeURIComponent(one.id)}/retry`), "Retrying");
  }

  drop(one) {
    return this.sure("Drop this notification?", "Drop", `${one.title}: it will not be sent.`, () => change("DELETE", `notices/${encodeURIComponent(one.id)}`));
  }
}

function receiverFields(one, rules, kinds) {
  const kept = one !== null ? "Leave empty to keep the current value." : null;
  const names = make("datalist", { id: "receiver-rules" }, ...rules.map((id) => make("option", { value: id })));
  return [
    textField("name", "Name", { required: "", maxlength: "100", value: one?.name ?? "", placeholder: "ops chat" }),
    ...(one === null ? [choiceField("kind", "Kind", kinds.map(({ kind, title }) => [kind, title]), kinds[0].kind)] : []),
    textField("url", "URL", { type: "url", maxlength: "2000", placeholder: one === null ? "https://hooks.example.org/…" : one.to }, kept ?? "https:// or http://. The path is not shown again."),
    textField("mails", "Addresses", { maxlength: "2000", value: one?.to ?? "", placeholder: "ops@example.org" }, "Up to 20, separated by commas."),
    choiceField("least", "Severity", LEASTS, one?.least ?? "warn"),
    textField("rules", "Rules", { maxlength: "4000", value: one?.rules.join(", ") ?? "", list: "receiver-rules", placeholder: "all rules" }, "Rule ids, separated by commas. Empty: all."),
    textField("token", "Token", { type: "password", autocomplete: "off", maxlength: "2000" }, `Sent as Authorization: Bearer. Never shown again.${one?.has_token ? " Leave empty to keep the current value." : ""}`),
    textField("token_file", "Or a token file", { maxlength: "64", value: one?.token_file ?? "" }, "A file name in the “secrets” folder of the hub's data folder."),
    areaField("template", "Template", one?.template ?? "", { maxlength: "10000", placeholder: '{"text": "{{text}}"}' }, "JSON with {{title}}, {{text}}, {{status}}, {{severity}}, {{places}}, {{url}} and more: see the docs."),
    areaField("headers", "Headers", linesOf(one?.headers ?? {}), { maxlength: "4000", placeholder: "X-Api-Key: {{token}}" }, "One per line. {{token}} becomes the token."),
    withOn(checkField("is_on", "On", "Off: nothing is sent; waiting notifications stay queued."), one?.is_on ?? true),
    names,
    make("p", { class: "problem", "data-needs-mail": "", hidden: "" }, NO_MAIL),
  ];
}

const linesOf = (headers) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n");

/** A line without a colon becomes a name without a value, which the hub refuses in words. */
function headersOf(lines) {
  return Object.fromEntries(lines.split("\n").filter((line) => line.trim() !== "").map((line) => {
    const at = line.indexOf(":");
    return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

function withOn(field, isOn) {
  field.querySelector("input").checked = isOn;
  return field;
}

/** Only the fields of this kind are there. */
function followKind(form, one, kindOf, hasMail) {
  const fieldOf = (name) => form.querySelector(`[name=${name}]`).closest("p");
  const follow = () => {
    const { destination, needs_mail: needsMail, wants_words: wantsWords, has_template: hasTemplate } = kindOf(one?.kind ?? form.elements.kind.value);
    for (const name of ["url", "token", "token_file"]) show(fieldOf(name), destination === "url");
    show(fieldOf("mails"), destination === "addresses");
    for (const name of ["template", "headers"]) show(fieldOf(name), hasTemplate);
    for (const name of ["least", "rules"]) show(fieldOf(name), wantsWords === "");
    form.elements.url.required = destination === "url" && one === null;
    form.elements.mails.required = destination === "addresses";
    show(form.querySelector("[data-needs-mail]"), needsMail && !hasMail);
  };
  form.addEventListener("change", follow);
  follow();
}

function wantsOf({ least, rules }) {
  const of = LEASTS.find(([value]) => value === least)[1];
  return [of === "all" ? "all alerts" : of, rules.length > 0 ? `of ${rules.join(", ")}` : ""].filter(Boolean).join(", ");
}

function stateOf(one, answer) {
  const told = one.told_at === null ? "nothing delivered yet" : `last delivered ${when(one.told_at)}`;
  const notes = [told, one.waiting > 0 ? `${amount(one.waiting)} waiting` : "", one.parked > 0 ? `${amount(one.parked)} set aside` : "",
    one.unreached > 0 ? `${amount(one.unreached)} for owners without an address` : "", one.dropped > 0 ? `${amount(one.dropped)} dropped (queue full)` : ""];
  const pill = !one.is_on ? ["span", "pill", "off"] : one.error !== "" ? ["span", "pill lost", "not delivered"] : one.told_at === null ? ["span", "pill", "idle"] : ["span", "pill ok", "well"];
  return [pill, ["small", "", notes.filter(Boolean).join(", ")], one.error === "" ? null : ["small", "", `${one.error}, ${when(one.error_at)}`],
    answer === undefined ? null : ["small", `test-answer ${answer.tone}`, answer.words]];
}

function waitingOf({ state, attempts, error, next_at: nextAt, parked_at: parkedAt }) {
  const pill = state === "parked" ? ["span", "pill lost", "set aside"] : ["span", "pill stale", "waits"];
  const words = state === "parked" ? `${when(parkedAt)}, after ${plural(attempts, "attempt")}` : attempts === 0 ? "sending" : `${plural(attempts, "attempt")}, next try ${when(nextAt)}`;
  return [pill, ["small", "", words], error === "" ? null : ["small", "", error]];
}
