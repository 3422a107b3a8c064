// Types of the fleet as it is drawn. Not served: types are for `make lint`.

/** A node of the layout; its site where this hub views others. */
interface NodeName {
  id: string;
  host: string;
  site: string | null;
}

/** An instance of MIG: its board's slot, its place such as "3/9", its profile. */
interface Instance {
  board: number;
  place: string;
  profile: string;
}

/** A GPU that is wasted: since when, and the memory held on it. */
interface WastedGpu {
  slot: number;
  since: number;
  bytes: number;
}

/** What is shown of slots beside their cells. */
interface SlotFacts {
  at?: number;
  owners: string[];
  owner: Uint16Array;
  paused: Uint8Array | null;
  lessees: string[];
  lessee: Uint16Array;
  leaseEnds: Uint32Array;
  memory: Uint8Array | null;
  wasted: Map<number, WastedGpu>;
  service: Map<number, string>;
  free: Uint8Array | null;
}

/** Facts of a past moment. */
type PastMoment = Partial<SlotFacts> & { epoch: number; at: number };

/** Cells of a past moment. */
interface PastCells {
  at: number;
  metric: string;
  cells: Uint8Array;
  exact: Float32Array | null;
  grainS?: number;
}

/** An array class of numbers. */
type NumbersClass<N> = new (buffer: ArrayBuffer) => N;

/** Does something with an event that was pressed. */
type EventPress = (event: Hub.EventView) => unknown;

/** A line of the list of events; `tick` tells its age again. */
interface EventLine extends DrawnLine<Hub.EventView> {
  tick(): void;
}

/** What a page shows of the fleet, as its address has it. */
type FleetView = Record<"sort" | "filter" | "gpu" | "view" | "at" | "metric" | "group", string>;

/** Room for the map, in CSS pixels. */
interface Room {
  width: number;
  height: number;
  isTouch: boolean;
}

type Measure = (text: string) => number;

/** Slots that stand together under a title. */
interface Section {
  title: string;
  slots: number[];
}

interface NodeBlock extends Section {
  rank: number;
}

interface Gaps {
  cell: number;
  block: number;
  row: number;
}

/** How many cells and blocks lie side by side, and how tall that becomes. */
interface NodeShape {
  h: number;
  across: number;
  gap: Gaps;
  label: "none" | "top" | "left";
  left: number;
  top: number;
  blocks: number;
  height: number;
}

type StackShape = Pick<NodeShape, "h" | "across" | "gap" | "top" | "blocks">;
type LineShape = NodeShape & { cellW: number; blockW: number };

/** A name on the map. */
interface MapWord {
  text: string;
  x: number;
  y: number;
  room: number;
  isHeading: boolean;
  node?: NodeBlock;
}

/** Where cells and names lie; of a node's cells the rows are filled one by one. */
interface FittedPlan {
  width: number;
  height: number;
  cellW: number;
  cellH: number;
  rows: CellRow[];
  words: MapWord[];
}

/** An arrangement; `listed`: all slots as a list has them, group by group. */
interface MapPlan extends FittedPlan {
  hasText: boolean;
  group: string;
  listed: number[];
}

/** A section's spot. */
interface SectionSpot {
  section: Section;
  x: number;
  y: number;
  top: number;
  width: number;
  across: number;
}

interface Pen {
  x: number;
  y: number;
  deepest: number;
}

interface PackedSections {
  spots: SectionSpot[];
  h: number;
  gap: Gaps;
  across: number;
  cellW: number;
  height: number;
}

/** A row of the map, and the place in it. */
interface MapPlace {
  row: number;
  at: number;
}

/** What a slot is described by. */
interface SlotWords extends CellWords {
  spoken: string;
}

type DescribeSlot = (slot: number) => SlotWords;

/** What the hub says of its metrics, with the metrics by key. */
type MetricBook = Omit<MetricTable, "metrics"> & { metrics: Map<string, Metric> };

/** A GPU as cards and drawers show it, now or at a past moment. */
type ShownGpu = (Hub.GpuView & { isThen?: undefined }) | GpuOfThen;

interface GpuOfThen {
  uuid: string;
  at: number;
  state: string;
  values: Record<string, number>;
  missing: Record<string, string>;
  last_values?: undefined;
  facts?: Hub.GpuFactsView;
  tasks: null;
  isThen: true;
}

/** Words of a value, or of why there is none. */
interface ValueWords extends Quantity {
  isMissing: boolean;
  meaning?: string;
}

/** Which block of the past is asked for. */
interface BlockWish {
  metric: string;
  at: number;
  step: number;
  size: number;
  isSeldom: boolean;
}

/** A block of the past as it is kept. */
interface PastBlock extends Omit<Hub.PastBlockView, "cells" | "exact"> {
  cells: Uint8Array;
  exact: Float32Array | null;
  size: number;
  until: number;
}

/** Cells of a past moment, with what is said of them. */
interface BlockMoment extends PastCells {
  epoch: number;
  count: number;
  seen: number;
  gone: number;
}

/** All but cells of a past moment. */
interface ShownMoment extends PastMoment {
  totals: {
    at: number;
    epoch: number;
    gpus: { free: number };
    wasted: { gpus: number; mem_bytes: number; gpu_hours_today: null };
  };
  queue: Hub.PastMomentView["queue"];
}

/** A mark of the time bar. */
interface TimeMark {
  at: number;
  kind: "alert" | "command";
  severity?: string;
  words: string;
}

/** The time bar, as what draws its ground needs it. */
interface TimeSpan {
  start: number;
  end: number;
  rangeS: number;
}

/** Words of a card: a figure, and more about it. */
interface CardWords {
  figure: string;
  detail: string;
  tone?: string;
}

/** A way from a row to a place. */
interface Way {
  words: string;
  uuid?: string;
  href?: string;
  filter?: string;
}

/** A row of a list behind a card. */
interface AttentionRow {
  key: string;
  what: string;
  detail: string;
  places: Way[];
  isCritical?: boolean;
  task?: Hub.TaskView;
}

/** What a page knows of the other GPUs. */
interface Around {
  nameOf(uuid: string): string | null;
  partsOf(uuid: string): number;
  isOffline(uuid: string): boolean;
  idleLine?: import("../assets/fleet/idle_gpus.mjs").IdleLine;
}

/** A GPU that holds memory and does nothing, and for how long. */
interface IdleGpu {
  gpu: Hub.GpuView;
  forS: number;
}

/** What is asked for seldom; null: it did not come. */
interface SeldomFacts {
  events: Hub.EventView[] | null;
  alerts: Hub.AlertView[] | null;
  leases: Hub.LeaseView[] | null;
}

/** The elements of a heatmap. */
interface HeatmapParts {
  root: HTMLElement;
  place: HTMLElement;
  stage: HTMLElement;
  canvas: HTMLCanvasElement;
  mark: HTMLElement;
  spoken: HTMLElement;
}

/** Elements of a metric's row. */
type MetricCells = Record<"row" | "value" | "old" | "bar" | "place", HTMLElement>;

interface MetricSection {
  list: HTMLElement;
  root: HTMLElement;
}

/** A GPU as a title names it. */
type NamedGpu = Pick<Hub.GpuView, "host" | "place" | "name"> & {
  node: string | null;
  uuid?: string;
  link?: string | null;
};

/** Alerts by the GPUs and nodes where they are marked. */
interface FiredAlerts extends TypedTarget<{ change: object }> {
  byGpu: Map<string, Hub.AlertView[]>;
  byNode: Map<string, Hub.AlertView[]>;
  isCalm: boolean;
  listed: Hub.AlertView[];
  of(uuid: string, node: string | null): Hub.AlertView[];
}

/** Totals of a past moment, as far as cards need them. */
type TotalsThen = ShownMoment["totals"];

/** Parts of a GPU's details. */
interface GpuParts {
  alerts: import("../assets/alerts/alert_lines.mjs").AlertLines;
  tasks: { title: HTMLElement; list: HTMLElement; draw(tasks: Hub.TaskView[], how: object): void };
  metrics: import("../assets/fleet/gpu_metrics.mjs").Metrics;
  events: import("../assets/live/event_lines.mjs").EventList;
  leases: HTMLElement;
}
