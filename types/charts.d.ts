// Types of timelines. Not served: types are for `make lint`.

/** A span of time, in UTC seconds. */
interface TimeRange {
  from: number;
  to: number;
}

/** Samples of a GPU: one axis of seconds, and its metrics beside it. */
interface Track {
  t: number[];
  values: Map<string, (number | null)[]>;
  why: Map<string, string | null>;
}

/** One metric of a track within a span. */
interface TrackWindow {
  t: number[];
  values: (number | null)[];
}

/** A row of a chart: a metric of a GPU, as its legend has it. */
interface ChartRow extends ChartLabel {
  uuid: string;
  key: string;
  meaning?: string;
}

interface ChartLabel {
  label: string;
  short?: string;
}

/** A limit that is drawn; a far one does not stretch the axis. */
interface ChartLimit {
  label: string;
  value: number;
  isFar: boolean;
}

/** A fact that limits a metric, its label, and whether it is far above. */
type LimitFact = [string, string, boolean?];

type BandKind = "power" | "heat";

/** A band in which a GPU was slowed down. */
interface Band extends TimeRange {
  kind: BandKind;
}

type ChartRange = (low: number, high: number, limits: ChartLimit[]) => [number, number];

/** How the axis says its numbers. */
interface ChartAxis {
  unit: string;
  increments?: number[];
  format: (value: number, step: number) => string;
}

/** A chart of one GPU: its metrics, and what is drawn with them. */
interface OnePlan {
  title: string;
  keys: string[];
  range: ChartRange;
  limits?: LimitFact[];
  bands?: BandKind | "any";
}

/** A chart. */
interface ChartPlan extends ChartAxis {
  id: string;
  title: string;
  meaning: string;
  range: ChartRange;
  metric: Metric;
  limits: ChartLimit[];
  hasLimits: boolean;
  bands?: BandKind | "any" | null;
  rows: ChartRow[];
}

/** A line of a chart, and what reads its values. */
interface ChartLine extends ChartLabel {
  meaning?: string;
  read: (value: number) => string;
}

interface ChartTraits extends ChartAxis {
  title: string;
  meaning: string;
  lines: ChartLine[];
  limits: ChartLimit[];
  hasLimits?: boolean;
  range: ChartRange;
  onZoom: (span: TimeRange) => void;
  colours: PageColours;
  together?: ((values: number[]) => string) | null;
  isQuiet?: boolean;
}

type PageColours = ReturnType<typeof import("../assets/parts/page_colours.mjs").pageColours>;

/** A mark of an event in a chart. */
interface ChartMark {
  at: number;
  kind: "info" | "warning" | "critical";
}

/** An alert as a stretch of time; to null: it fires still. */
interface AlertSpan {
  id: string;
  rule: string;
  name: string;
  from: number;
  to: number | null;
  title: string;
  severity: "info" | "warn" | "crit";
  isSilenced: boolean;
  place: string;
  gpu: string;
  uuids: string[];
}

/** What is drawn over the data of a chart. */
interface ChartOverlay {
  bands: Band[];
  marks: ChartMark[];
  alerts: AlertSpan[];
}

/** What a chart shows: a span of a store's samples, with marks and alerts over them. */
interface ChartContent extends Pick<ChartOverlay, "marks" | "alerts"> {
  span: TimeRange;
  store: import("../assets/charts/line_store.mjs").LineStore;
}

/** What is wrong with a GPU among others. */
interface GpuTrouble {
  tone: Trouble;
  note: string;
  since: string;
  why: string;
}

/** Seconds between two samples that were not read. */
interface Hole extends TimeRange {
  uuid: string;
}

/** What the address of a page with timelines means. */
interface MachinePlace {
  kind: string;
  name?: string;
  place?: string | null;
  uuids?: string[];
  id?: string;
}

interface Machines {
  node: Hub.NodeView | null;
  gpus: Hub.GpuView[];
}

/** An error with links to what may be meant. */
type LinkedError = Error & { status: number; links?: HTMLElement[] };

/** A job, where it runs, and what these GPUs do. */
interface JobHere {
  key: string;
  user: string | null;
  command: string | null;
  job: string;
  places: number[];
  tasks: Hub.TaskView[];
  standstill: string; // paused or suspended, all of its tasks
  idleS: number | null;
  load: number | null;
}

/** A job as its card draws it. */
interface JobLine extends JobHere {
  nameOf: (place: number) => string;
  at: Map<string, number>;
  on: string;
}

/** A chart that stands on the page. */
interface ShownChart {
  plan: ChartPlan;
  isSeen: boolean;
  isOld?: boolean;
  chart: import("../assets/charts/chart.mjs").Chart;
}
