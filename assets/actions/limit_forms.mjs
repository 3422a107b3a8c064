// Forms for a setting of MPS or of a GPU: the fields, and what the API is sent of them, as in
// action_params.mjs; a form reads null while something is missing.

import { choiceField, textField } from "../parts/dialog.mjs";
import { HOUR_S } from "../parts/time_ranges.mjs";

const TIMES = [
  ["3600", "1 h"],
  ["14400", "4 h"],
  ["28800", "8 h"],
  ["86400", "1 day"],
  ["604800", "7 days"],
];
/** @type {Record<string, number>} */
const MIB_OF = { MiB: 1, GiB: 1_024 };

/** @type {(input: HTMLInputElement, low: number, high: number) => number | null} */
const whole = (input, low, high) => {
  const value = Number(input.value.trim());
  return input.value.trim() !== "" && Number.isInteger(value) && value >= low && value <= high
    ? value
    : null;
};
const leaseField = () =>
  choiceField(
    "lease_s",
    "For how long",
    TIMES,
    String(HOUR_S),
    "Afterwards the previous value is restored.",
  );

/**
 * @type {(title: string, fields: HTMLElement[], read: (root: NamedForm) => object | null) =>
 *   ActionForm}
 */
export function form(title, fields, read) {
  return {
    title,
    isFilled: () => true,
    read: (root) => {
      const setting = read(root);
      return setting === null ? null : { setting };
    },
    fields: (changed) => {
      // Not `change` of what is typed: it comes with the very click that confirms.
      for (const field of fields) field.addEventListener("input", changed);
      return fields;
    },
  };
}

/** @type {(gpu: Hub.GpuView) => ActionForm} */
export function capForm(gpu) {
  const [low, high] = [gpu.facts.power_limit_min_w, gpu.facts.power_limit_max_w].map((watts) =>
    watts === null || watts === undefined ? null : Math.round(watts),
  );
  const hint = low === null || high === null ? null : `This GPU accepts ${low} to ${high} W.`;
  const watts = textField(
    "watts",
    "Power limit, in watts",
    { type: "number", step: "1", ...(low === null ? {} : { min: low, max: high }) },
    hint,
  );
  return form("Cap the power of a GPU", [watts, leaseField()], ({ elements }) => {
    const watts = whole(elements.watts, 1, 5_000);
    return watts === null
      ? null
      : { type: "power_cap", gpu_uuid: gpu.uuid, watts, lease_s: Number(elements.lease_s.value) };
  });
}

/** @type {(gpu: Hub.GpuView) => ActionForm} */
export function lockForm(gpu) {
  const top =
    gpu.facts.sm_clock_max_mhz === null || gpu.facts.sm_clock_max_mhz === undefined
      ? ""
      : ` The maximum of this GPU is ${Math.round(gpu.facts.sm_clock_max_mhz)} MHz.`;
  const low = textField("min_mhz", "From, in MHz", {
    type: "number",
    min: "1",
    step: "1",
    value: "210",
  });
  const high = textField(
    "max_mhz",
    "To, in MHz",
    { type: "number", min: "1", step: "1" },
    `The SM clock.${top}`,
  );
  return form("Lock the clocks of a GPU", [low, high, leaseField()], ({ elements }) => {
    const [min, max] = [whole(elements.min_mhz, 1, 20_000), whole(elements.max_mhz, 1, 20_000)];
    return min === null || max === null
      ? null
      : {
          type: "clock_lock",
          gpu_uuid: gpu.uuid,
          min_mhz: min,
          max_mhz: max,
          lease_s: Number(elements.lease_s.value),
        };
  });
}

/** @type {(lease: Hub.TimedLimit) => ActionForm} */
export const undoForm = (lease) =>
  form("Remove a limit", [], () => ({
    type: "limit_off",
    gpu_uuid: lease.gpu_uuid,
    what: lease.what,
  }));

/** @type {(gpu: Hub.GpuView) => ActionForm} */
export function modeForm(gpu) {
  const mode = choiceField(
    "mode",
    "Compute mode",
    [
      ["exclusive_process", "One process at a time (with MPS: its server)"],
      ["default", "Several processes at a time"],
    ],
    "exclusive_process",
    "Applies to processes started from now on.",
  );
  return form("Set the compute mode of a GPU", [mode], ({ elements }) => ({
    type: "compute_mode",
    gpu_uuid: gpu.uuid,
    mode: elements.mode.value,
  }));
}

/** @type {(mode: Hub.ManagedComputeMode) => ActionForm} */
export const openForm = ({ gpu_uuid: uuid }) =>
  form("Allow several processes on a GPU again", [], () => ({
    type: "compute_mode",
    gpu_uuid: uuid,
    mode: "default",
  }));

const WITHIN = [
  ["600", "10 min"],
  ["3600", "1 h"],
  ["14400", "4 h"],
  ["86400", "1 day"],
  ["604800", "7 days"],
];

/**
 * `uuid` null: the whole node.
 * @type {(uuid: string | null) => ActionForm}
 */
export function drainForm(uuid) {
  const within = choiceField(
    "within_s",
    "Time for the owners to finish",
    WITHIN,
    "14400",
    "Nothing is ended automatically when this time has passed.",
  );
  return form("Drain: no new work, and its tasks may finish", [within], ({ elements }) => ({
    type: "drain",
    gpu_uuid: uuid ?? "*",
    within_s: Number(elements.within_s.value),
  }));
}

/** @type {(uuid: string | null) => ActionForm} */
export function diagnoseForm(uuid) {
  const level = choiceField(
    "level",
    "Level",
    [
      ["1", "1: seconds"],
      ["2", "2: a few minutes"],
    ],
    "1",
    "Passing does not prove that it is healthy.",
  );
  return form("Diagnose an empty GPU", [level], ({ elements }) => ({
    type: "gpu_diagnosis",
    gpu_uuid: uuid,
    level: Number(elements.level.value),
  }));
}

/** @type {(title: string, type: string, uuid: string | null) => ActionForm} */
export const serviceForm = (title, type, uuid) =>
  form(title, [], () => ({ type, gpu_uuid: uuid ?? "*" }));

/** @type {(gpu: Hub.GpuView) => ActionForm} */
export function splitForm(gpu) {
  const layout = textField(
    "layout",
    "Layout",
    { type: "text", maxlength: "128", placeholder: "2x 3g.40gb + 1x 1g.10gb" },
    "none: no instance; off: MIG off too. Only a GPU that is cordoned or drained can be split.",
  );
  return form("Split a GPU by MIG", [layout], ({ elements }) => {
    const layout = elements.layout.value.trim();
    return layout === "" ? null : { type: "mig_layout", gpu_uuid: gpu.uuid, layout };
  });
}

/** @type {(layout: Hub.ManagedMigLayout) => ActionForm} */
export const wholeForm = ({ gpu_uuid: uuid }) =>
  form("Destroy all MIG instances of a GPU", [], () => ({
    type: "mig_layout",
    gpu_uuid: uuid,
    layout: "none",
  }));

/** @type {(daemon: Daemon) => HTMLElement} */
const serverField = (daemon) =>
  choiceField(
    "server",
    "Applies to",
    [
      ...daemon.servers.map(({ pid, user }) => [
        String(pid),
        `new clients of server ${pid}${user === null ? "" : ` (${user})`}`,
      ]),
      ["", "the next server, as the default"],
    ],
    daemon.servers.length > 0 ? String(daemon.servers[0].pid) : "",
    "Running clients keep their current value.",
  );
/** @type {(elements: NamedForm["elements"]) => number | null} */
const serverOf = ({ server }) => (server.value === "" ? null : Number(server.value));

/** @type {(daemon: Daemon) => ActionForm} */
export function shareForm(daemon) {
  const pct = textField(
    "pct",
    "Share of the GPU's threads, in whole %",
    { type: "number", min: "1", max: "100", step: "1" },
    "A maximum for each client, not a reservation.",
  );
  return form("Set the share of MPS clients", [serverField(daemon), pct], ({ elements }) => {
    const pct = whole(elements.pct, 1, 100);
    return pct === null
      ? null
      : { type: "mps_percent", pipes: daemon.pipes, pct, server: serverOf(elements) };
  });
}

/** @type {(daemon: Daemon) => ActionForm} */
export function memoryForm(daemon) {
  const ordinal = textField("ordinal", "Device number, as MPS counts", {
    type: "number",
    min: "0",
    max: "31",
    step: "1",
    value: "0",
  });
  const size = textField(
    "size",
    "Memory per client (empty: no limit)",
    { type: "number", min: "1", step: "1" },
    "Whole numbers only: MPS misreads fractions.",
  );
  const unit = choiceField(
    "unit",
    "Unit",
    Object.keys(MIB_OF).map((name) => [name, name]),
    "GiB",
  );
  return form(
    "Limit the memory of MPS clients",
    [serverField(daemon), ordinal, size, unit],
    ({ elements }) => {
      const number = whole(elements.ordinal, 0, 31);
      const isFree = elements.size.value.trim() === "" && !elements.size.validity.badInput;
      const size = isFree
        ? null
        : whole(elements.size, 1, 16_777_216 / MIB_OF[elements.unit.value]);
      if (number === null || (!isFree && size === null)) return null;
      const mib = size === null ? null : size * MIB_OF[elements.unit.value];
      return {
        type: "mps_memory",
        pipes: daemon.pipes,
        ordinal: number,
        mem_mib: mib,
        server: serverOf(elements),
      };
    },
  );
}

/** @type {(daemon: Daemon) => ActionForm} */
export function presetForm(daemon) {
  const name = choiceField(
    "name",
    "Preset",
    [
      ["high", "High: 60 %, normal priority"],
      ["normal", "Normal: 30 %, normal priority"],
      ["low", "Low: 10 %, below normal"],
    ],
    "normal",
    "Applies to new clients.",
  );
  return form("Use a preset for MPS clients", [serverField(daemon), name], ({ elements }) => ({
    type: "mps_preset",
    pipes: daemon.pipes,
    name: elements.name.value,
    server: serverOf(elements),
  }));
}

// What the doctor names to mend something: an act on a Node, or on a GPU.
/** @type {Record<string, [string, (setting: any, indexOf: IndexOf) => string] | undefined>} */
const FIXES = {
  mps_start: ["start_mps", () => "Start MPS"],
  mps_restart: ["restart_mps", () => "Restart MPS"],
  mps_percent: ["set_mps", ({ pct }) => `Set ${pct} % again`],
  mps_memory: [
    "set_mps",
    ({ mem_mib: mib, ordinal }) =>
      `Set ${mib === null ? "no limit" : `${mib} MiB`} on device ${ordinal} again`,
  ],
  mps_priority: [
    "set_mps",
    ({ priority }) => `Set ${priority === 0 ? "normal priority" : "below normal"} again`,
  ],
  compute_mode: [
    "set_compute_mode",
    ({ gpu_uuid: uuid }, indexOf) => `Make GPU ${indexOf(uuid) ?? uuid.slice(4, 12)} exclusive`,
  ],
};

/**
 * `target` null: the node.
 * @type {(setting: Setting, indexOf: IndexOf) => SettingFix | null}
 */
export function fixOf(setting, indexOf) {
  const fix = FIXES[setting.type];
  if (fix === undefined) return null;
  const [action, words] = fix;
  const name = words(setting, indexOf);
  const target = "gpu_uuid" in setting ? setting.gpu_uuid : null;
  return { action, words: name, target, form: form(name, [], () => setting) };
}

/** @type {(title: string, type: string, pipes: string) => ActionForm} */
export const plainForm = (title, type, pipes) => form(title, [], () => ({ type, pipes }));
