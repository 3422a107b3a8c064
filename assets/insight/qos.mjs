// The QoS page: what tenants were promised, get, and did not get.

import { look, send } from "../parts/api.mjs";
import { ask, sentence, textField } from "../parts/dialog.mjs";
import { button, byId, keepFocus, make, redraw, say, sayOrHide, settle, show } from "../parts/dom.mjs";
import { age, amount, moment, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";

const EVERY_MS = 10_000;
const LABELS = { gpus: "Too few GPUs", wait: "Waited too long", throttling: "Throttled too much" };
const WORDS = { gpus: (value) => plural(value, "GPU"), wait: (value) => age(value), throttling: (value) => `${amount(value, 1)} % of the time` };

export default class QosPage extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("qos-problem"), what: "quality of service" });
    Object.assign(this, { root, policies: [] });
    this.begin();
  }

  async begin() {
    await this.meet();
    if (this.may("operator")) return void this.look();
    sayOrHide(byId("qos-none"), "Promises name tenants and what they hold, so they are visible to operators only.");
    settle(this.root);
  }

  ask() {
    return look("qos");
  }

  fail(error) {
    super.fail(error);
    settle(this.root);
  }

  take({ items, violations }) {
    this.policies = items.map(({ policy }) => policy);
    const broken = items.filter(({ unkept }) => unkept.length > 0).length;
    say(byId("qos-words"), items.length === 0 ? "" : broken === 0 ? "All promises are kept now." : `${plural(broken, "tenant")} ${broken === 1 ? "does" : "do"} not get what was promised now.`);
    sayOrHide(byId("qos-none"), items.length > 0 ? "" : "Nothing is promised to anybody. An admin promises a user or a team GPUs, a longest wait of its claims, or how much its GPUs may be throttled.");
    redraw(byId("qos-acts"), this.may("admin"), () => (this.may("admin") ? [button("Promise …", () => this.edit(null))] : []));
    keepFocus(byId("qos-place"), () => redraw(byId("qos-place"), items, () => items.map((one) => this.line(one))));
    show(byId("qos-past"), violations.length > 0);
    redraw(byId("qos-violations"), violations, () => violations.map(violationLine));
    settle(this.root);
  }

  line({ policy, gpus, waiting, longest_wait_s: longest, throttled_pct: throttled, unkept, week }) {
    const count = week.reduce((sum, { violations }) => sum + violations, 0);
    const rows = [
      ["GPUs", policy.gpus, policy.gpus === null ? "" : `at least ${WORDS.gpus(policy.gpus)} while it asks for more`, gpus === null ? "not known" : `has ${WORDS.gpus(gpus)}${waiting ? `, ${plural(waiting, "claim")} waiting` : ""}`, "gpus"],
      ["Wait", policy.wait_s, policy.wait_s === null ? "" : `maximum ${age(policy.wait_s)}`, waiting === null ? "not known" : longest === null ? "nothing waits" : `the longest waits for ${age(longest)}`, "wait"],
      ["Throttling", policy.throttled_pct, policy.throttled_pct === null ? "" : `maximum ${WORDS.throttling(policy.throttled_pct)}, over 10 min`, throttled === null ? "not known" : `${WORDS.throttling(throttled)} now`, "throttling"],
    ].filter(([, promised]) => promised !== null);
    return make("li", { class: "advice-one" },
      make("div", { class: "advice-hours" }, make("strong", {}, String(count)), make("span", {}, "violations in 7 days")),
      make("div", {},
        make("h2", {}, policy.tenant.replace(":", " "), ...unkept.map((kind) => [" ", make("span", { class: "pill lost" }, LABELS[kind])]).flat()),
        make("dl", {}, ...rows.map(([name, , promise, now, kind]) => make("div", {}, make("dt", {}, name), make("dd", {}, `${promise}; ${now}. ${weekWords(week.find((one) => one.kind === kind))}`)))),
        this.may("admin") ? make("p", { class: "advice-acts" }, button("Change …", () => this.edit(policy)), button("Remove", () => this.put(this.policies.filter(({ tenant }) => tenant !== policy.tenant)))) : null));
  }

  async edit(policy) {
    const given = (name, value) => (value === null || value === undefined ? {} : { value: String(value) });
    const number = (name, label, value, hint, more = {}) => textField(name, label, { type: "number", min: "0", step: "any", ...more, ...given(name, value) }, hint);
    await ask({
      title: "Promise to a tenant", lead: ["Nothing is done by this: it is watched, and counted where it is not kept."], verb: "Save",
      fields: [
        textField("tenant", "Tenant", { required: "", pattern: "(user|team):.+", ...given("tenant", policy?.tenant) }, "user:NAME or team:NAME"),
        number("gpus", "GPUs", policy?.gpus, "At least, while it asks for more.", { step: "1", min: "1" }),
        number("wait", "Longest wait, in minutes", policy?.wait_s ? policy.wait_s / 60 : null, "Of one of its claims.", { min: "1" }),
        number("throttled", "Most throttling, in %", policy?.throttled_pct, "By heat or the power brake, over ten minutes.", { max: "100" }),
      ],
      submit: (form) => {
        const value = (name, unit = 1) => (form.get(name) === "" ? null : Number(form.get(name)) * unit);
        const made = { tenant: form.get("tenant"), gpus: value("gpus"), wait_s: value("wait", 60), throttled_pct: value("throttled") };
        return send("PUT", "qos", { items: [...this.policies.filter(({ tenant }) => tenant !== made.tenant && tenant !== policy?.tenant), made] });
      },
    });
    this.look();
  }

  async put(items) {
    await send("PUT", "qos", { items }).catch((error) => this.complain(sentence(error.message)));
    this.look();
  }
}

const weekWords = ({ violations, seconds }) => (violations === 0 ? "No violation seen in 7 days." : `Not kept ${violations === 1 ? "once" : `${violations} times`} in 7 days, for ${age(seconds)} in all.`);

const violationLine = ({ tenant, kind, began_at: began, ended_at: ended, worst, promised }) => make("li", {},
  make("time", {}, moment(began)), ` ${tenant.replace(":", " ")}: `, make("span", {}, `${LABELS[kind]}: ${WORDS[kind](worst)}, promised ${WORDS[kind](promised)}; ${ended === null ? "continues" : `for ${age(ended - began)}`}`));
