// A rule being written: a form and its YAML, two views of one thing, with what is wrong at its field
// and whom it is true of at this moment.

import { send } from "../parts/api.mjs";
import { ofWords } from "./alert_words.mjs";
import { ask, choiceField, sentence, textField } from "../parts/dialog.mjs";
import { DraftCheck } from "../parts/draft_check.mjs";
import { button, make, options, redraw, sayOrHide, show } from "../parts/dom.mjs";
import { amount } from "../parts/format.mjs";
import { change, onlyOf } from "../parts/password_prompt.mjs";
import { Rehearsal } from "./rehearsal.mjs";

const TYPED_MS = 350;
const NAMED = 6;
const MOST_STEPS = 6;
const OFS = [["gpu", "a GPU"], ["task", "a task"], ["job", "a job"], ["node", "a node"], ["owner", "an owner"], ["fleet", "the fleet"]];
const SEVERITIES = [["info", "info"], ["warn", "warning"], ["crit", "critical"]];
const NO_DATA = [["alert", "alert: report the missing data"], ["ok", "ok: treat as not met"], ["hold", "hold: keep the current state"]];
const MODES = [["observe", "observe: no actions"], ["dry_run", "dry run: actions are only logged"], ["confirm", "confirm: a person approves each action"], ["auto", "auto: runs on its own"]];
const DOS = [["tell", "notify the owner"], ["limit", "limit its power"],
              ["pause", "pause"], ["end", "end"]];
// What is added to a ladder: told, told again, ended.
const NEXT_STEPS = [{ do: "tell", after: "0s" }, { do: "tell", after: "10m" }, { do: "end", after: "10m" }];
const WHEN_REFUSED = [["stop", "stop: no further steps"], ["skip", "skip: the next step runs as scheduled"]];
const GROUPS = ["rule", "node", "owner", "gpu"];
const TEXTS = ["title", "scope", "signal", "fire", "clear", "for", "keep_firing_for", "max_gap", "cooldown", "owner", "runbook", "expires"];
const CHOICES = ["of", "severity", "no_data", "mode", "when_refused"];
const FRESH = { of: "gpu", scope: "*", for: "2m", severity: "warn", no_data: "alert", mode: "observe", when_refused: "stop", keep_firing_for: "0s", cooldown: "10m", min_coverage: 0.8, group_by: ["rule", "node"], budget: { acts: 5, within: "10m" } };

/** Resolves with the rule as it was kept, or null. `number`: of the version that is edited. */
export function editRule(rule, number, mayChange) {
  const form = new RuleForm(rule);
  return ask({
    title: rule === null ? "New rule" : mayChange ? rule.title : `${rule.title} (read-only: only admins change rules)`,
    fields: form.parts, verb: rule === null ? "Save rule" : "Save changes",
    submit: async () => {
      if (!mayChange) throw new Error("Only admins can change rules.");
      const wanted = await form.read();
      return change("PUT", `rules/${encodeURIComponent(wanted.id)}`, wanted, onlyOf(number));
    },
    opened: (root) => form.open(root),
  });
}

class RuleForm {
  constructor(rule) {
    Object.assign(this, { rule, isYaml: false, isTried: false, touched: new Set(), hasOwnId: rule !== null });
    this.outcome = make("output", { class: "rule-check", role: "status" }, "Current matches appear here as you type.");
    this.steps = make("div", { class: "rule-steps" });
    this.moreSteps = button("Add a step", () => { this.addStep(NEXT_STEPS[Math.min(this.steps.children.length, NEXT_STEPS.length - 1)]); this.check.soon(); });
    this.views = make("div", { class: "switch rule-views", role: "group", "aria-label": "Editor" },
      ...[["form", "Form"], ["yaml", "YAML"]].map(([name, words]) => make("button", { type: "button", "data-way": name, "aria-pressed": String(name === "form"), onclick: () => this.show(name === "yaml") }, words)));
    this.form = make("div", { class: "rule-form" }, ...this.fields());
    this.yaml = make("textarea", { name: "yaml", rows: "18", spellcheck: "false", "aria-label": "The rule as YAML", class: "rule-yaml" });
    this.yamlPlace = make("div", { hidden: "" }, make("p", { class: "field" }, this.yaml, make("small", {}, "Same fields and checks as in a rules file. Fields left out get their defaults.")));
    this.check = new DraftCheck(TYPED_MS,
      () => send("POST", "rule-checks", { ...this.draft(), is_new: this.rule === null && (this.isYaml || this.root.elements.id.value.trim() !== "") }),
      (found) => this.draw(found), ({ status, message }) => (status === 403 ? "Only operators and admins see current matches here." : message));
    this.rehearsal = new Rehearsal(() => this.read());
    this.parts = [this.views, this.form, this.yamlPlace, make("details", { class: "rule-group" }, make("summary", {}, "Rehearsal"), this.rehearsal.root), this.outcome];
  }

  fields() {
    const given = this.rule ?? FRESH;
    const text = (name, label, hint, traits = {}) => textField(name, label, { maxlength: "400", ...traits, value: given[name] ?? "" }, hint);
    const choice = (name, label, options, hint = null) => choiceField(name, label, options, given[name] ?? FRESH[name], hint);
    return [
      group("Condition", [
        text("title", "Title", "Shown in the alert and in notifications.", { required: "", placeholder: "Near thermal limit" }),
        textField("id", "Id", { required: "", pattern: "[a-z0-9][a-z0-9\\-]{0,63}", maxlength: "64", placeholder: "near-thermal-limit", value: this.rule?.id ?? "", ...(this.rule === null ? {} : { readonly: "" }) }, "Lower-case letters, digits and dashes. Cannot be changed later."),
        choice("of", "Evaluated per", OFS, "One alert for each of these."),
        text("scope", "Applies to", "The filter language, such as model:h100 & node:gpu-rack-3 (matches part of the name). * means all.", { required: "" }),
        text("signal", "Signal", "A metric, or an expression such as avg(util_pct, 5m) or power_w / power_limit_w.", { required: "", placeholder: "temp_c" }),
        area("where", "Only if", (given.where ?? []).join("\n"), 2, "One condition per line, such as mem_used_bytes >= 1GiB."),
      ]),
      group("When it fires", [
        text("fire", "Fires when", "A comparison: >= 85, < 5, = 1.", { required: "", placeholder: ">= 85" }),
        text("clear", "Clears when", "Default: 3 °C, 5 % or one twentieth below the threshold.", { placeholder: "< 80" }),
        text("for", "For", "0s fires immediately; from 5m on, whole minutes are evaluated.", { required: "" }),
        text("keep_firing_for", "Clear after", "How long the condition must stay cleared; firing again within this time continues the same alert."),
      ]),
      group("Notifications", [
        choice("severity", "Severity", SEVERITIES),
        checks("group_by", "Group notifications by", GROUPS, given.group_by ?? FRESH.group_by, "Alerts with the same values share one notification."),
        textField("inhibited_by", "Suppressed by", { value: (given.inhibited_by ?? []).join(", ") }, "Ids of rules. While one of them is firing there, no notification is sent."),
        text("owner", "Contact", "The person or team responsible for this rule."),
        area("runbook", "Runbook", given.runbook ?? "", 3, "Included in every notification."),
      ]),
      group("When data is missing", [
        choice("no_data", "Missing data means", NO_DATA),
        textField("min_coverage", "Share of samples needed", { type: "number", min: "0.01", max: "1", step: "0.01", value: String(given.min_coverage ?? 0.8) }, "Within the time above."),
        text("max_gap", "Longest gap", "Default: three sampling periods."),
      ], true),
      group("Actions", [
        choice("mode", "Mode", MODES),
        make("div", { class: "field wide", "data-field": "ladder" }, make("span", { class: "label" }, "Ladder"), this.steps, this.moreSteps, make("small", {}, "From mild to severe; the owner is notified first. The delay counts from the step before.")),
        choice("when_refused", "When a step is refused", WHEN_REFUSED, "Applies to a final refusal by the node. If a warning is refused, no harsher step follows."),
        text("cooldown", "Cool-down", "Minimum time before acting on the same target again."),
        textField("budget.acts", "At most", { type: "number", min: "1", max: "100", value: String(given.budget?.acts ?? 5) }, "Actions of this rule …"),
        textField("budget.within", "… within", { value: given.budget?.within ?? "10m" }),
        text("expires", "Until", "The last day of auto, such as 2027-01-31."),
      ], true),
    ];
  }

  open(root) {
    this.root = root;
    root.closest("dialog").classList.add("wide");
    (this.rule?.ladder ?? []).forEach((step) => this.addStep(step));
    const { title, id } = root.elements;
    title.addEventListener("input", () => { if (!this.hasOwnId) id.value = slug(title.value); });
    id.addEventListener("input", () => { this.hasOwnId = id.value !== ""; });
    for (const happening of ["input", "focusout"]) root.addEventListener(happening, ({ target }) => { this.touch(target); this.check.soon(); });
    if (this.rule !== null) this.check.look();
  }

  /** What nobody has come to yet is not called wrong. */
  touch(control) {
    const place = control.closest("[data-field]");
    if (place !== null) this.touched.add(place.dataset.field);
  }

  addStep({ do: what, after }) {
    const count = this.steps.children.length;
    if (count >= MOST_STEPS) return;
    const select = make("select", { "aria-label": "Step", "data-do": "" }, options(DOS));
    select.value = what;
    const line = make("div", { class: "rule-step" }, select, make("span", {}, "after"), make("input", { "aria-label": "After", "data-after": "", value: after, maxlength: "20", autocomplete: "off" }),
      button("Remove", () => { line.remove(); show(this.moreSteps, true); this.check.soon(); this.moreSteps.focus(); }, { "aria-label": "Remove this step" }));
    this.steps.append(line);
    show(this.moreSteps, count + 1 < MOST_STEPS);
  }

  /** What is wrong with what stands in the form is said by the hub, not guessed here. */
  ruleNow() {
    const { elements } = this.root;
    const value = (name) => elements[name].value.trim();
    const fields = Object.fromEntries([...TEXTS, ...CHOICES, "id"].map((name) => [name, value(name)]));
    return {
      ...this.rule, ...fields, // a field that a newer hub knows is not lost by an older page
      where: value("where").split("\n").map((line) => line.trim()).filter(Boolean),
      inhibited_by: value("inhibited_by").split(/[\s,]+/).filter(Boolean), min_coverage: Number(value("min_coverage")),
      group_by: GROUPS.filter((name) => this.root.querySelector(`[data-group="${name}"]`).checked),
      ladder: [...this.steps.children].map((line) => ({ do: line.querySelector("[data-do]").value, after: line.querySelector("[data-after]").value.trim() })),
      budget: { acts: Number(value("budget.acts")), within: value("budget.within") },
    };
  }

  draft() {
    return this.isYaml ? { yaml: this.yaml.value } : { rule: { ...this.ruleNow(), id: this.root.elements.id.value.trim() || "new" } };
  }

  draw({ problems, targets, matching, names, rule, basis, refused }) {
    this.outcome.classList.toggle("bad", problems.length > 0);
    const lines = problems.length > 0 ? problems.map(({ field, message }) => `${field === "" ? "" : `${field}: `}${message}`) : [matchWords(rule.of, targets, matching, names, basis), ...refused.map((step) => sentence(step.sentence))];
    redraw(this.outcome, lines, () => lines.map((line) => make("p", {}, line)));
    this.mark(problems);
  }

  mark(problems) {
    const wrong = new Map(problems.map(({ field, message }) => [field.replace(/\[\d+\].*$/, ""), message]));
    if (wrong.has("budget")) wrong.set("budget.within", wrong.get("budget"));
    for (const place of this.form.querySelectorAll("[data-field]")) {
      const isOld = this.rule !== null || this.isTried || this.touched.has(place.dataset.field);
      const message = isOld ? wrong.get(place.dataset.field) ?? "" : "";
      place.classList.toggle("wrong", message !== "");
      const control = place.querySelector("input, select, textarea");
      control?.setAttribute("aria-invalid", String(message !== ""));
      const hint = place.querySelector(".field-wrong");
      if (hint !== null) sayOrHide(hint, message);
      if (message !== "") place.closest("details")?.setAttribute("open", "");
    }
  }

  /** Through the hub, which alone knows how a rule is written. */
  async show(isYaml) {
    if (isYaml === this.isYaml) return;
    const found = await this.check.look();
    if (found === null) return;
    if (isYaml && found.yaml !== "") this.yaml.value = found.yaml;
    else if (!isYaml && found.rule !== null) this.fill(found.rule);
    else return; // what is wrong stands below
    this.isYaml = isYaml;
    for (const button of this.views.children) button.setAttribute("aria-pressed", String((button.dataset.way === "yaml") === isYaml));
    show(this.form, !isYaml);
    show(this.yamlPlace, isYaml);
    // A field that is not shown cannot be found wanting by the browser.
    this.form.querySelectorAll("input, select, textarea").forEach((control) => { control.disabled = isYaml; });
    this.check.look();
  }

  fill(rule) {
    const { elements } = this.root;
    for (const name of [...TEXTS, ...CHOICES]) elements[name].value = rule[name];
    if (this.rule === null) { elements.id.value = rule.id; this.hasOwnId = true; }
    elements.where.value = rule.where.join("\n");
    elements.inhibited_by.value = rule.inhibited_by.join(", ");
    elements.min_coverage.value = String(rule.min_coverage);
    elements["budget.acts"].value = String(rule.budget.acts);
    elements["budget.within"].value = rule.budget.within;
    for (const name of GROUPS) this.root.querySelector(`[data-group="${name}"]`).checked = rule.group_by.includes(name);
    this.steps.replaceChildren();
    show(this.moreSteps, true);
    rule.ladder.forEach((step) => this.addStep(step));
  }

  async read() {
    this.isTried = true;
    const found = await this.check.now();
    if (found.problems.length > 0 || found.rule === null) {
      this.form.querySelector(".wrong input, .wrong select, .wrong textarea")?.focus();
      throw new Error(this.isYaml ? "See the error above." : "Some fields have errors; see the fields and the summary above.");
    }
    if (this.rule !== null && found.rule.id !== this.rule.id) throw new Error(`The id of a rule cannot be changed:  ${this.rule.id}.`);
    return found.rule;
  }
}

function matchWords(of, targets, matching, names, basis) {
  if (targets === 0) return "Applies to nothing at the moment.";
  if (basis === "grows") return `Applies to ${ofWords(of, targets)}. A single moment cannot show a change over time: rehearse the rule.`;
  const now = basis === "newest" ? " (latest samples only)" : " at this moment";
  if (matching === 0) return `Condition met by none of ${ofWords(of, targets)}${now}.`;
  const more = matching - Math.min(NAMED, names.length);
  return `Condition met by ${amount(matching)} of ${ofWords(of, targets)}${now}: ${names.slice(0, NAMED).join(", ")}${more > 0 ? ` and ${amount(more)} more` : ""}.`;
}

function group(title, fields, isFolded = false) {
  fields.forEach(named);
  const place = make("div", { class: "rule-fields" }, ...fields);
  return isFolded ? make("details", { class: "rule-group" }, make("summary", {}, title), place)
    : make("fieldset", { class: "rule-group" }, make("legend", {}, title), place);
}

/** Where what is wrong with it will stand. */
function named(field) {
  field.dataset.field ??= field.querySelector("[name]")?.name ?? "";
  field.append(make("small", { class: "field-wrong", hidden: "" }));
}

function area(name, label, value, rows, hint) {
  const place = textField(name, label, {}, hint);
  const old = place.querySelector("input");
  const made = make("textarea", { name, rows: String(rows), id: old.id, maxlength: "4000", spellcheck: "false", "aria-describedby": old.getAttribute("aria-describedby") });
  made.value = value;
  old.replaceWith(made);
  return place;
}

function checks(name, label, options, chosen, hint) {
  return make("div", { class: "field", role: "group", "aria-label": label, "data-field": name }, make("span", { class: "label" }, label),
    make("div", { class: "rule-checks" }, ...options.map((option) => {
      const box = make("input", { type: "checkbox", "data-group": option });
      box.checked = chosen.includes(option);
      return make("label", { class: "check" }, box, make("span", {}, option));
    })), make("small", {}, hint));
}

const slug = (title) => title.toLowerCase().normalize("NFKD").replace(/\p{M}/gu, "").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 64);
