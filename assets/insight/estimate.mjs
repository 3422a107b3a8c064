// The Estimate page: what a model needs, part by part, and where it fits. What is chosen stands in the
// address; the config itself does not.

import { readView, writeView } from "../parts/address.mjs";
import { send } from "../parts/api.mjs";
import { copyable, sentence } from "../parts/dialog.mjs";
import { afterPause, byId, make, options, sayOrHide, settle } from "../parts/dom.mjs";
import { amount, bytesWords, plural } from "../parts/format.mjs";
import { FIELDS, USUAL, bodyOf } from "./estimate_form.mjs";

const TYPED_MS = 400;
const FILE_MOST = 2 ** 20;

export default class Estimate {
  constructor(root) {
    Object.assign(this, { root, number: 0, view: readView(USUAL, { kind: ["inference", "training"] }) });
    this.config = make("textarea", { id: "estimate-config", rows: "9", spellcheck: "false", autocapitalize: "none" });
    this.config.value = EXAMPLE;
    this.fields = make("div", { class: "estimate-fields" });
    const file = make("input", { type: "file", accept: ".json,application/json", class: "unseen", tabindex: "-1", "aria-hidden": "true" });
    file.addEventListener("change", () => this.open(file.files[0]));
    byId("estimate-form").append(
      make("div", { class: "field" }, make("label", { for: "estimate-config" }, "config.json of the model"), this.config,
        make("small", {}, "Paste it from Hugging Face, or ", make("button", { type: "button", class: "as-link", onclick: () => file.click() }, "open a file"), file, ". It stays between this page and the hub.")),
      this.fields);
    this.config.addEventListener("input", afterPause(TYPED_MS, () => this.ask()));
    byId("estimate-kind").addEventListener("click", ({ target }) => target.dataset.kind && this.choose({ kind: target.dataset.kind }, true));
    this.drawFields();
    this.ask();
  }

  async open(file) {
    if (file === undefined) return;
    if (file.size > FILE_MOST) return void this.fail("This file is larger than 1 MiB: no config.json is.");
    this.config.value = await file.text();
    this.ask();
  }

  choose(change, isOtherKind = false) {
    Object.assign(this.view, change);
    writeView(this.view, USUAL);
    if (isOtherKind) this.drawFields();
    this.ask();
  }

  drawFields() {
    for (const button of byId("estimate-kind").children) button.setAttribute("aria-pressed", String(button.dataset.kind === this.view.kind));
    this.fields.replaceChildren(...FIELDS[this.view.kind].map((field) => this.field(field)));
  }

  field({ name, label, choices = null, hint = null, ...traits }) {
    const id = `estimate-${name}`;
    const control = choices === null ? make("input", { id, inputmode: "numeric", autocomplete: "off", maxlength: "24", ...traits }) : make("select", { id }, options(choices));
    control.value = this.view[name];
    control.addEventListener(choices === null ? "input" : "change", afterPause(choices === null ? TYPED_MS : 0, () => this.choose({ [name]: control.value.trim() })));
    return make("p", { class: "field", title: hint }, make("label", { for: id }, label), control);
  }

  async ask() {
    const number = (this.number += 1);
    try {
      const found = await send("POST", "estimates", bodyOf(this.view, configOf(this.config.value)));
      if (number === this.number) this.draw(found);
    } catch (error) {
      if (number === this.number) this.fail(error.message);
    }
    settle(this.root);
  }

  fail(words) {
    sayOrHide(byId("estimate-problem"), sentence(words));
    for (const place of ["sum", "parts", "notes", "fits"]) byId(`estimate-${place}`).replaceChildren();
  }

  draw(found) {
    sayOrHide(byId("estimate-problem"), "");
    byId("estimate-sum").replaceChildren(...sumOf(found));
    byId("estimate-parts").replaceChildren(partsOf(found));
    byId("estimate-notes").replaceChildren(...notesOf(found).map((words) => make("li", {}, words)));
    byId("estimate-fits").replaceChildren(...fitsOf(found));
  }
}

function configOf(text) {
  try {
    const found = JSON.parse(text);
    if (found !== null && typeof found === "object" && !Array.isArray(found)) return found;
  } catch { /* said below */ }
  throw new Error("this is not a config.json: a JSON object is expected");
}

function sumOf({ total, low, high, ask, gpus, parameters, active }) {
  const each = gpus > 1 ? `each of ${amount(gpus)} GPUs` : "one GPU";
  const sparse = active !== null && active < parameters / 2 ? `, ${amount(active / 1e9, 2)} of them per token` : "";
  return [make("p", { class: "estimate-total" }, make("strong", {}, bytesWords(total)), ` on ${each}`),
    make("p", {}, `${bytesWords(low)} to ${bytesWords(high)}; have ${bytesWords(ask)} free. ${amount(parameters / 1e9, 2)} billion parameters${sparse}.`)];
}

function partsOf({ parts, total }) {
  return make("table", { class: "rows", "aria-label": "Parts of the memory" },
    make("thead", {}, make("tr", {}, ...["Part", "GiB", "How it is computed"].map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...parts.map((part) => {
      const bar = make("i", { "aria-hidden": "true" });
      bar.style.width = `${Math.min(100, (100 * part.bytes) / total)}%`;
      return make("tr", {}, make("th", { scope: "row", "data-head": "Part" }, part.name), make("td", { class: "number", "data-head": "GiB" }, amount(part.bytes / 2 ** 30, 2), make("span", { class: "estimate-bar" }, bar)),
        make("td", { class: "formula", "data-head": "How" }, part.formula));
    })));
}

function notesOf({ error, inexact, notes }) {
  const doubt = inexact.length === 0 ? `Published figures of this kind were met within ${amount(100 * error)} %.` : `A range of 20 %: ${inexact.join("; ")}.`;
  return [doubt, ...notes.map(sentence)];
}

function fitsOf({ fits }) {
  if (fits.length === 0) return [make("h2", {}, "In this fleet"), make("p", { class: "none" }, "No GPU reports at the moment, or none that you can see.")];
  return [make("h2", {}, "In this fleet"), make("ul", {}, ...fits.map(fitOf))];
}

function fitOf(fit) {
  const head = make("p", {}, make("strong", {}, fit.model), ` ${bytesWords(fit.mem_bytes, "memory unknown")}`);
  if (fit.gpus === null) return make("li", { class: "fit-no" }, head, make("p", {}, make("span", { class: "pill" }, "does not fit"), ` ${sentence(fit.why)}`));
  const lines = [`${plural(fit.gpus, "GPU")} of ${amount(fit.there)} (${fit.layout}), ${bytesWords(fit.ask_bytes)} each; ${amount(fit.free)} free now.`];
  if (fit.speed !== null) lines.push(speedOf(fit.speed));
  if (fit.why !== "") lines.push(sentence(fit.why));
  return make("li", { class: "fit-yes" }, head, ...lines.map((words) => make("p", {}, words)), fit.command === "" ? null : copyable(fit.command, "the command"));
}

function speedOf({ tokens_per_s: [low, high], formula, days }) {
  const took = days === null ? "" : ` ${amount(days[0], 1)} to ${amount(days[1], 1)} days.`;
  return `${amount(low)} to ${amount(high)} tokens/s: ${formula}.${took}`;
}

const EXAMPLE = `{
  "model_type": "llama",
  "hidden_size": 4096,
  "num_hidden_layers": 32,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "intermediate_size": 14336,
  "vocab_size": 128256
}`;
