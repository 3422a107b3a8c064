// MPS of a node, and the limits that gpudeck holds on a GPU: what is wanted, and what is in force.

import { isAtLeast, me } from "../parts/account.mjs";
import { begin, settledAt } from "./actions.mjs";
import { sentence } from "../parts/dialog.mjs";
import { button, make } from "../parts/dom.mjs";
import { moment, plural } from "../parts/format.mjs";
import { Panel, note } from "../parts/panel.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";
import {
  capForm,
  fixOf,
  lockForm,
  memoryForm,
  modeForm,
  openForm,
  plainForm,
  presetForm,
  shareForm,
  undoForm,
} from "./limit_forms.mjs";

const SOON_MS = 700;
const SOON_FOR_MS = 3_000;
/** @type {Record<string, [string, string]>} */
const STATES = {
  beginning: ["being set", "stale"],
  applying: ["being set", "stale"],
  half_made: ["half made", "lost"],
  in_force: ["in force", "ok"],
  not_in_force: ["not in force", "lost"],
  drifted: ["changed externally", "lost"],
  unknown: ["unknown", "stale"],
};
const WHAT = { power: ["Power", "W"], clocks: ["SM clock", "MHz"] };

/**
 * @template I
 * @extends {Panel<I>}
 */
export class SettingsPanel extends Panel {
  path = "";

  constructor(name = "limits") {
    super(name);
    this.isOperator = false;
    me().then(
      (who) => {
        this.isOperator = isAtLeast(who, "operator");
        this.askedAt = -Infinity;
      },
      () => {},
    );
  }

  /**
   * The panel asks again soon after something was set.
   * @type {(node: string) => Promise<void>}
   */
  refresh(node) {
    const isSoon = performance.now() - settledAt() < SOON_FOR_MS;
    return this.ask(`${this.path}?node=${encodeURIComponent(node)}`, isSoon ? SOON_MS : undefined);
  }

  /**
   * @type {(words: string, does: string, action: string, target: string, makeForm: () =>
   *   ActionForm | null) => HTMLElement}
   */
  button(words, does, action, target, makeForm) {
    return button(words, (event) => this.start(action, target, makeForm(), event), {
      "data-does": does,
    });
  }

  /** @type {(...buttons: HTMLElement[]) => HTMLElement | null} */
  acts(...buttons) {
    return buttons.length === 0 || !this.isOperator
      ? null
      : make("p", { class: "limits-acts" }, ...buttons);
  }

  /**
   * @type {(action: string, target: string, form: ActionForm | null, event: MouseEvent) => void}
   */
  start(action, target, form, event) {
    const from = event.detail === 0 ? null : { x: event.clientX, y: event.clientY };
    begin(action, [target], from, form);
  }
}

/** @extends {SettingsPanel<Hub.NodeLimitsView>} */
export class GpuLimits extends SettingsPanel {
  /** @param {Hub.GpuView} gpu */
  constructor(gpu) {
    super();
    this.gpu = gpu;
    this.path = "limits";
  }

  /** @type {(items: Hub.NodeLimitsView[]) => void} */
  draw([node = null]) {
    const { gpu } = this;
    const leases = (node?.leases ?? []).filter((lease) => lease.gpu_uuid === gpu.uuid);
    const modes = (node?.modes ?? []).filter((mode) => mode.gpu_uuid === gpu.uuid);
    const trouble =
      node === null ? "The node has not reported whether limits can be set." : node.trouble;
    const unread = node?.unread ?? "";
    const key = [
      leases.map((lease) => ({ ...lease, seen: null, seen_at: null })),
      modes,
      trouble,
      unread,
    ];
    this.put([key, this.isOperator], () => [
      ...(unread === "" ? [] : [make("p", { class: "act-warning" }, sentenceOf(unread))]),
      ...leases.map((lease) => this.lease(lease)),
      ...modes.map((mode) => this.mode(mode)),
      ...(leases.length + modes.length === 0
        ? [
            note(
              gpu.facts.parent_uuid
                ? "Limits apply to the whole board, not to a single instance."
                : trouble === ""
                  ? "No limit is set by gpudeck."
                  : sentenceOf(trouble),
            ),
          ]
        : []),
      ...(this.isOperator && trouble === "" && !gpu.facts.parent_uuid
        ? [
            make(
              "p",
              { class: "limits-acts" },
              this.button("Cap power", "cap", "set_power_cap", gpu.uuid, () => capForm(gpu)),
              this.button("Lock clocks", "lock", "lock_clocks", gpu.uuid, () => lockForm(gpu)),
              this.button("Compute mode", "mode", "set_compute_mode", gpu.uuid, () =>
                modeForm(gpu),
              ),
            ),
          ]
        : []),
    ]);
  }

  /** @type {(lease: Hub.TimedLimit) => HTMLElement} */
  lease(lease) {
    const [name, unit] = WHAT[lease.what];
    return settingLine(
      lease,
      `${name} ${lease.wanted.map((value) => Math.round(value)).join(" to ")} ${unit}`,
      moment(lease.ends_at),
      this.acts(
        this.button("Undo", `undo ${lease.what}`, "release_limit", lease.gpu_uuid, () =>
          undoForm(lease),
        ),
      ),
    );
  }

  /** @type {(mode: Hub.ManagedComputeMode) => HTMLElement} */
  mode(mode) {
    return settingLine(
      mode,
      "One process at a time",
      "removed",
      this.acts(
        this.button("Undo", "undo mode", "set_compute_mode", mode.gpu_uuid, () => openForm(mode)),
      ),
    );
  }
}

/**
 * Something that gpudeck keeps in force: until when, by whom, and the proof or what is wrong.
 * @type {(kept: Pick<Hub.ManagedMigLayout | Hub.TimedLimit | Hub.ManagedComputeMode, "state" |
 *   "by" | "reason" | "words">, what: string, until: string, acts: HTMLElement | null) =>
 *   HTMLElement}
 */
export function settingLine({ state, by, reason, words }, what, until, acts) {
  const [stateWords, tone] = STATES[state] ?? [state, "stale"];
  return make(
    "div",
    { "class": "limit", "data-state": state },
    make(
      "p",
      {},
      make("strong", {}, what),
      " ",
      make("span", { class: `pill ${tone}` }, stateWords),
    ),
    note(`Until ${until}, by ${by}${reason ? `: “${reason}”` : ""}. ${sentenceOf(words)}`),
    acts,
  );
}

/** @extends {SettingsPanel<Hub.NodeMpsView>} */
export class NodeMps extends SettingsPanel {
  /**
   * `indexOf`: of a GPU's UUID, as everything else on the page names it.
   * @param {string} node
   * @param {IndexOf} indexOf
   */
  constructor(node, indexOf) {
    super();
    this.node = node;
    this.indexOf = indexOf;
    this.path = "mps";
  }

  /** @type {(items: Hub.NodeMpsView[]) => void} */
  draw([found = null]) {
    const daemons = found?.daemons ?? [];
    const trouble =
      found === null ? "The node has not reported whether MPS is running." : found.trouble;
    const findings = found?.findings ?? [];
    this.put([daemons, trouble, findings, this.isOperator], () => {
      if (daemons.length === 0 && findings.length === 0)
        return [
          note(
            trouble === ""
              ? "No MPS control daemon is running, and none left files behind."
              : sentenceOf(trouble),
          ),
        ];
      return [...daemons.map((daemon) => this.daemon(daemon)), this.doctor(findings)];
    });
  }

  /** @type {(findings: Hub.MpsFinding[]) => HTMLElement} */
  doctor(findings) {
    const isWrong = findings.some(({ weight }) => weight === "fault");
    return make(
      "div",
      { "class": "limit mps-doctor", "role": "group", "aria-label": "MPS doctor" },
      make(
        "p",
        {},
        make("strong", {}, "MPS doctor"),
        " ",
        make(
          "span",
          { class: `pill ${isWrong ? "lost" : "ok"}` },
          isWrong ? "problems found" : "no problems found",
        ),
      ),
      findings.length === 0
        ? note("Checked: daemons, servers, logs and the GPUs' compute modes.")
        : make(
            "ul",
            { class: "mps-findings" },
            ...findings.map((finding) => this.finding(finding)),
          ),
    );
  }

  /** @type {(finding: Hub.MpsFinding) => HTMLElement} */
  finding({ code, weight, cause, remedy, fixes }) {
    const mending = fixes.map((fix) => fixOf(fix, this.indexOf)).filter((fix) => fix !== null);
    return make(
      "li",
      { "data-code": code },
      make(
        "p",
        {},
        make(
          "span",
          { class: `pill ${weight === "fault" ? "lost" : "stale"}` },
          weight === "fault" ? "fix needed" : "advice",
        ),
        ` ${sentenceOf(cause)}`,
      ),
      note(sentenceOf(remedy)),
      this.acts(
        ...mending.map((fix, at) =>
          this.button(
            fix.words,
            `fix ${code} ${at}`,
            fix.action,
            fix.target ?? this.node,
            () => fix.form,
          ),
        ),
      ),
    );
  }

  /** @type {(daemon: Hub.MpsDaemon) => HTMLElement} */
  daemon(daemon) {
    const { pipes, is_alive: isAlive } = daemon;
    const acts = isAlive
      ? [
          this.button("Share", `share ${pipes}`, "set_mps", this.node, () => shareForm(daemon)),
          this.button("Memory", `memory ${pipes}`, "set_mps", this.node, () => memoryForm(daemon)),
          this.button("Preset", `preset ${pipes}`, "set_mps", this.node, () => presetForm(daemon)),
          this.button("Restart", `restart ${pipes}`, "restart_mps", this.node, () =>
            plainForm("Restart MPS", "mps_restart", pipes),
          ),
          this.button("Stop", `stop ${pipes}`, "stop_mps", this.node, () =>
            plainForm("Stop MPS", "mps_stop", pipes),
          ),
        ]
      : [
          this.button("Start", `start ${pipes}`, "start_mps", this.node, () =>
            plainForm("Start MPS", "mps_start", pipes),
          ),
        ];
    return make(
      "div",
      { "class": "limit", "data-pipes": pipes },
      make(
        "p",
        {},
        make("code", {}, pipes),
        " ",
        make(
          "span",
          { class: `pill ${isAlive ? "ok" : "lost"}` },
          isAlive ? "answers" : "does not answer",
        ),
        ` ${daemon.user === null ? "" : `of ${daemon.user}`}`,
      ),
      ...(daemon.trouble === ""
        ? []
        : [make("p", { class: "act-warning" }, sentenceOf(daemon.trouble))]),
      ...(isAlive
        ? [
            note(
              `Default for the next server: ${share(daemon.default_pct)}, ${priority(daemon.default_priority)}${memoryWords(daemon.default_memory)}.`,
            ),
          ]
        : []),
      ...daemon.servers.map((server) => this.server(server)),
      ...(isAlive && daemon.servers.length === 0
        ? [note("No server yet: the first client starts one.")]
        : []),
      this.acts(...acts),
    );
  }

  /** @type {(server: Hub.MpsServer) => HTMLElement} */
  server(server) {
    const rows = server.clients.map((client) =>
      make(
        "li",
        { "data-pid": client.pid },
        make("span", { class: "act-pid" }, String(client.pid)),
        make("span", {}, client.user ?? "owner unknown"),
        make("code", { title: wholeCommand(client.command) }, shortCommand(client.command)),
        make(
          "span",
          {
            class: client.pct !== server.pct ? "limits-old" : null,
            title:
              client.pct !== server.pct
                ? "This client keeps the value it started with"
                : "The server's current value",
          },
          share(client.pct),
        ),
        ...(this.isOperator && client.task_id
          ? [
              this.button(
                "Disconnect client",
                `out ${client.task_id}`,
                "terminate_client",
                client.task_id,
                () => null,
              ),
            ]
          : []),
      ),
    );
    return make(
      "div",
      { "class": "mps-server", "data-server": server.pid },
      make(
        "p",
        {},
        make("strong", {}, `Server ${server.pid}`),
        ` ${server.user ?? "owner unknown"}${server.status === null ? "" : `, ${server.status.toLowerCase()}`}: new clients get ${share(server.pct)}${memoryWords(server.memory)}; ${plural(server.clients.length, "client")}.`,
      ),
      make("ul", { class: "mps-clients" }, ...rows),
    );
  }
}

/** @type {(pct: number | null) => string} */
const share = (pct) => (pct === null ? "an unknown share" : `${pct} %`);
/** @type {(value: number | null) => string} */
const priority = (value) =>
  ["normal priority", "below normal priority"][value ?? -1] ?? "priority unknown";
/** @type {(limits: [number, string][]) => string} */
const memoryWords = (limits) =>
  limits.map(([ordinal, limit]) => `, ${limit} on device ${ordinal}`).join("");
/** @type {(text: string) => string} */
export const sentenceOf = (text) => (text === "" ? "" : sentence(text));
