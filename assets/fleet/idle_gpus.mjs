// GPUs that hold memory and do nothing, and the sentence that says so.

import { begin, isMadeUp, mayAct, pressed } from "../actions/actions.mjs";
import { ACTS } from "../actions/action_words.mjs";
import { me } from "../parts/account.mjs";
import { make, redraw, show } from "../parts/dom.mjs";
import { age, bytesWords, untilWords } from "../parts/format.mjs";
import { shortCommand } from "../parts/commands.mjs";

const OFFERED = ["notify", "end"];

/**
 * [{gpu, forS}] of those that the hub calls wasted.
 * @type {(gpus: Hub.GpuView[]) => IdleGpu[]}
 */
export const idleOf = (gpus) =>
  gpus.flatMap((gpu) => {
    const forS = gpu.wasted_s ?? null;
    return forS === null ? [] : [{ gpu, forS }];
  });

/** "Under 5 % busy since 14:16 (2 h), holds 49.1 GiB, bohdan, train.py", and what may be done about it. */
export class IdleLine {
  /** @type {Person | null} */
  person = null;

  constructor() {
    this.root = make("div", { class: "idle-line", role: "status", hidden: "" });

    me().then(
      (person) => {
        this.person = person;
      },
      () => {},
    );
  }

  /**
   * `isNamed`: other GPUs are there, too.
   * @type {(idle: IdleGpu[], tasks: Hub.TaskView[], isNamed?: boolean) => void}
   */
  draw(idle, tasks, isNamed = false) {
    const uuids = new Set(idle.map(({ gpu }) => gpu.uuid));
    const there = tasks.filter(({ gpus }) => gpus.some(({ uuid }) => uuids.has(uuid)));
    const acts =
      there.length > 0 && there.every((task) => mayAct(this.person, task) && !isMadeUp(task))
        ? ACTS.filter(({ id }) => OFFERED.includes(id))
        : [];
    const [words, commands] = [
      idleWords(idle, there, isNamed),
      [...new Set(there.map(({ command }) => command ?? ""))],
    ];
    show(this.root, idle.length > 0);
    redraw(
      this.root,
      [words, commands, there.map(({ id }) => id), acts.map(({ id }) => id)],
      () => [
        make("strong", {}, words[0]),
        make("span", { title: commands.join("\n") }, words[1]),
        ...acts.map((act) => actButton(act, there)),
      ],
    );
  }
}

/** @type {(row: Hub.ActionRow, tasks: Hub.TaskView[]) => HTMLElement} */
function actButton({ id, label }, tasks) {
  const endButton = make(
    "button",
    { "type": "button", "class": "button small", "data-act": id },
    label,
  );
  pressed(
    endButton,
    () => (event) =>
      begin(
        id,
        tasks.map((task) => task.id),
        { x: event.clientX, y: event.clientY },
      ),
  );
  return endButton;
}

/**
 * [what is said loud, the rest]; of several GPUs also which they are.
 * @type {(idle: IdleGpu[], tasks: Hub.TaskView[], isNamed: boolean) => [string, string]}
 */
function idleWords(idle, tasks, isNamed) {
  if (idle.length === 0) return ["", ""];
  const bytes = bytesWords(idle.reduce((sum, { gpu }) => sum + gpu.values.mem_used_bytes, 0));
  const longestS = Math.max(...idle.map(({ forS }) => forS));
  const since = `${untilWords(Date.now() / 1000 - longestS)} (${age(longestS)})`;
  const owners = [...new Set(tasks.map(({ user }) => user ?? "owner unknown"))].join(", ");
  const commands = [...new Set(tasks.map(({ command }) => shortCommand(command)))];
  const whose = [owners, commands.length === 1 ? commands[0] : ""].filter(Boolean).join(", ");
  if (idle.length === 1)
    return [
      `${isNamed ? `GPU ${idle[0].gpu.place} under` : "Under"} 5 % busy since ${since}, holds ${bytes}`,
      whose,
    ];
  return [
    `GPUs ${idle.map(({ gpu }) => gpu.place).join(", ")} under 5 % busy, the first since ${since}, hold ${bytes}`,
    whose,
  ];
}
