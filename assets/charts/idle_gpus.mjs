// GPUs that hold memory and do nothing: since when, as history has it, and the sentence that says so.

import { begin, mayAct, pressed } from "../actions/actions.mjs";
import { ACTS } from "../actions/action_words.mjs";
import { me } from "../parts/account.mjs";
import { look } from "../parts/api.mjs";
import { make, redraw, show } from "../parts/dom.mjs";
import { age, bytesWords } from "../parts/format.mjs";
import { shortCommand } from "../tasks/commands.mjs";
import { pastOf } from "./past_series.mjs";

const IDLE_AT_MOST_PCT = 1;
const HELD_BYTES = 2 ** 30;
const IDLE_FROM_S = 600;
const BACK_S = 86_400;
const ASK_EVERY_S = 60;
const KEYS = ["util_pct", "mem_used_bytes"];

const OFFERED = ["notify", "end"];

const isIdle = (util, held) => util !== null && util <= IDLE_AT_MOST_PCT && held >= HELD_BYTES;

export class IdleGpus {
  constructor() {
    this.known = new Map(); // uuid -> {askedAt, since}
  }

  /** [{gpu, forS}] of those that are idle for ten minutes or longer. */
  async of(gpus) {
    const now = Date.now() / 1000;
    const found = await Promise.all(gpus.map(async (gpu) => {
      const isNow = gpu.state === "ok" && gpu.tasks.length > 0 && isIdle(gpu.values.util_pct ?? null, gpu.values.mem_used_bytes ?? 0);
      if (!isNow) { this.known.delete(gpu.uuid); return null; }
      return { gpu, forS: now - await this.since(gpu.uuid, now) };
    }));
    return found.filter((one) => one !== null && one.forS >= IDLE_FROM_S);
  }

  async since(uuid, now) {
    const last = this.known.get(uuid);
    if (last !== undefined && now - last.askedAt < ASK_EVERY_S) return last.since;
    const { t, columns } = await pastOf(uuid, KEYS, now - BACK_S, now, 60, look).catch(() => ({ t: [], columns: {} }));
    const since = last?.since ?? idleSince(t, columns, now);
    this.known.set(uuid, { askedAt: now, since });
    return since;
  }
}

/** Backwards from now to the first minute in which it worked or was not read. */
export function idleSince(t, { util_pct: util, mem_used_bytes: held }, now) {
  let since = now;
  for (let at = t.length - 1; at >= 0; at--) {
    const isOpen = now - t[at] < 120 && util[at] === null; // the minute that is not over
    if (!isOpen && !isIdle(util[at], held[at])) break;
    since = t[at];
  }
  return since;
}

/** "Idle for 2 h, holds 49.1 GiB, bohdan, train.py", and what may be done about it. */
export class IdleLine {
  constructor() {
    this.root = make("div", { class: "idle-line", role: "status", hidden: "" });
    this.person = null;
    me().then((person) => { this.person = person; }, () => {});
  }

  /** `isNamed`: other GPUs are there, too. */
  draw(idle, tasks, isNamed = false) {
    const uuids = new Set(idle.map(({ gpu }) => gpu.uuid));
    const there = tasks.filter(({ gpus }) => gpus.some(({ uuid }) => uuids.has(uuid)));
    const acts = there.length > 0 && there.every((task) => mayAct(this.person, task)) ? ACTS.filter(({ id }) => OFFERED.includes(id)) : [];
    const [words, commands] = [idleWords(idle, there, isNamed), [...new Set(there.map(({ command }) => command ?? ""))]];
    show(this.root, idle.length > 0);
    redraw(this.root, [words, commands, there.map(({ id }) => id), acts.map(({ id }) => id)], () => [
      make("strong", {}, words[0]), make("span", { title: commands.join("\n") }, words[1]), ...acts.map((act) => actButton(act, there))]);
  }
}

function actButton({ id, label }, tasks) {
  const found = make("button", { type: "button", class: "button small", "data-act": id }, label);
  pressed(found, () => (event) => begin(id, tasks.map((task) => task.id), { x: event.clientX, y: event.clientY }));
  return found;
}

/** [what is said loud, the rest]; of several GPUs also which they are. */
function idleWords(idle, tasks, isNamed) {
  if (idle.length === 0) return ["", ""];
  const bytes = bytesWords(idle.reduce((sum, { gpu }) => sum + gpu.values.mem_used_bytes, 0));
  const longest = age(Math.max(...idle.map(({ forS }) => forS)));
  const owners = [...new Set(tasks.map(({ user }) => user ?? "owner unknown"))].join(", ");
  const commands = [...new Set(tasks.map(({ command }) => shortCommand(command)))];
  const whose = [owners, commands.length === 1 ? commands[0] : ""].filter(Boolean).join(", ");
  if (idle.length === 1) return [`${isNamed ? `GPU ${idle[0].gpu.place} idle` : "Idle"} for ${longest}, holds ${bytes}`, whose];
  return [`GPUs ${idle.map(({ gpu }) => gpu.place).join(", ")} idle for up to ${longest}, hold ${bytes}`, whose];
}
