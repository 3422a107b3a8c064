// What one does with a lease or a claim: ask for GPUs, extend, give back, withdraw.

import { ApiError, send } from "../parts/api.mjs";
import { choiceField, sentence, textField } from "../parts/dialog.mjs";
import { make, options } from "../parts/dom.mjs";
import { moment, plural } from "../parts/format.mjs";
import { localText, nowS, zoneWords } from "../parts/time_ranges.mjs";
import { toast } from "../parts/toast.mjs";
import { leasedWords } from "./pool_model.mjs";

const LABELS = { gpus: "GPUs", owner: "User", models: "Model", mem_bytes: "Memory per GPU", share_milli: "Share of a GPU", hosts: "Node", term_s: "Duration", by_s: "Extend by", starts_at: "When" };
const WHEN = [["now", "as soon as they are free"], ["at", "at a given time"]];

const leasePath = ({ id }, what) => `leases/${encodeURIComponent(id)}/${what}`;

export function extend(page, lease) {
  return page.asked({
    title: `Extend the lease of ${lease.owner} on ${lease.host}`, verb: "Extend",
    lead: `Until ${moment(lease.until)} now. The node applies the change within seconds.`,
    fields: [textField("by_s", LABELS.by_s, { required: "", value: "2h" }, "Such as 30m, 2h or 1d.")],
    submit: (given) => told(send("POST", leasePath(lease, "extend"), { by_s: given.get("by_s").trim() })),
  });
}

export function giveBack(page, lease) {
  return page.sure(`Give back ${leasedWords(lease, page.gpus)} of ${lease.host}?`, "Give back",
    "Another user may get them within a second. Processes still running on them continue without a lease.",
    () => send("POST", leasePath(lease, "give-back"), {}));
}

export async function withdraw(page, claim) {
  await page.sure("Leave the queue?", "Leave the queue", `${claim.owner} asked for ${claim.asks}. A new claim starts at the end of the queue.`, () => send("DELETE", `claims/${encodeURIComponent(claim.id)}`));
}

/** `wanted`: {host, startsAt, term} that were chosen before. */
export async function askForGpus(page, wanted = {}) {
  const made = await page.asked({
    title: wanted.startsAt ? "Reserve GPUs" : "Request GPUs", verb: wanted.startsAt ? "Reserve" : "Request",
    lead: "They are leased to you as soon as they are free, and returned if they stay unused. To run a command right away, use “gpudeck run” on the node.",
    fields: [make("div", { class: "pool-fields" }, ...fieldsOf(page, wanted))],
    submit: (given) => told(send("POST", "claims", claimOf(given))),
    opened: watchForm,
  });
  if (made === null) return;
  const leave = () => send("DELETE", `claims/${encodeURIComponent(made.id)}`);
  toast(wanted.startsAt ? "Requested." : "You are in the queue.", leave);
}

function fieldsOf(page, wanted) {
  const { person, pool, nodes } = page;
  const names = person.unix_names;
  const isForOthers = page.may("operator");
  const models = pool.models.map(({ model, free }) => [model, `${model} (${free} free)`]);
  const hosts = make("datalist", { id: "pool-hosts" }, options(nodes.map(({ host }) => [host, host])));
  const when = choiceField("when", LABELS.starts_at, WHEN, wanted.startsAt ? "at" : "now");
  return [
    textField("gpus", LABELS.gpus, { type: "number", min: "1", max: "1024", required: "", value: "1" }),
    choiceField("model", LABELS.models, [["", "any"], ...models], ""),
    textField("term_s", LABELS.term_s, { required: "", value: wanted.term ?? "8h" }, "Such as 30m, 8h or 2d."),
    textField("mem_bytes", LABELS.mem_bytes, { placeholder: "40G" }, "Minimum. Empty: any."),
    when,
    make("div", { class: "pool-from" }, textField("at", "From", { type: "datetime-local", step: "60", value: localText(wanted.startsAt ?? nowS() + 3_600).slice(0, 16) }, zoneWords(nowS()))),
    textField("share", LABELS.share_milli, { type: "number", min: "1", max: "100", placeholder: "100" }, "In percent, of one GPU shared with others. Empty: the whole GPU."),
    make("div", {}, textField("host", LABELS.hosts, { list: "pool-hosts", placeholder: "any", value: wanted.host ?? "" }), hosts),
    ...(isForOthers || names.length === 0 ? [textField("owner", LABELS.owner, { required: "", value: names[0] ?? "" }, "A user of the node.")]
      : names.length > 1 ? [choiceField("owner", LABELS.owner, names.map((name) => [name, name]), names[0])] : []),
  ];
}

/** A time is asked for only where one is meant. */
function watchForm(form) {
  const { when, at } = form.elements;
  const draw = () => {
    at.required = when.value === "at";
    form.querySelector(".pool-from").classList.toggle("away", !at.required);
  };
  when.addEventListener("change", draw);
  draw();
}

function claimOf(given) {
  const text = (name) => String(given.get(name) ?? "").trim();
  return {
    gpus: Number(text("gpus")), term_s: text("term_s"), mem_bytes: text("mem_bytes") || null,
    models: text("model") === "" ? [] : [text("model")], hosts: text("host") === "" ? [] : [text("host")],
    share_milli: text("share") === "" ? 1_000 : 10 * Number(text("share")), owner: text("owner") || null,
    starts_at: text("when") === "at" ? Date.parse(text("at")) / 1000 : null,
  };
}

/** A refusal that begins with the name of a field says it as the form does. */
async function told(answer) {
  try {
    return (await answer) ?? true;
  } catch (error) {
    const found = /^(\w+): (.*)$/s.exec(error.message);
    if (found === null || LABELS[found[1]] === undefined) throw error;
    throw new ApiError(error.status, { detail: `${LABELS[found[1]]}: ${sentence(found[2])}` });
  }
}

export const waitsWords = ({ waiting, waiting_gpus: gpus }) => (waiting === 0 ? "no one waiting" : `${plural(waiting, "claim")} ${waiting === 1 ? "waits" : "wait"} for ${plural(gpus, "GPU")}`);
