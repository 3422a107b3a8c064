// Types that many modules of the pages share. Not served: types are for `make lint`.

type Child = Node | string | null | undefined;
type Children = Child | readonly Children[];

/** Traits of an element; those that begin with "on" are listeners. */
interface Traits {
  onclick?: ((event: MouseEvent) => unknown) | null;
  onsubmit?: (event: SubmitEvent) => unknown;
  [name: string]: unknown;
}

/** The element's type by its tag's name. */
type ElementOf<T extends string> = T extends keyof HTMLElementTagNameMap
  ? HTMLElementTagNameMap[T]
  : HTMLElement;

/** A number as people read it. */
interface Quantity {
  text: string;
  unit: string;
}

type Theme = "dark" | "light";
type Person = Hub.CurrentActorView;
type Method = "DELETE" | "PATCH" | "POST" | "PUT";
type Tone = "info" | "warning" | "critical";

/** A target whose events have details, by their names. */
declare class TypedTarget<M> extends EventTarget {
  addEventListener<K extends keyof M & string>(
    name: K,
    does: (event: CustomEvent<M[K]>) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    name: string,
    does: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof M & string>(
    name: K,
    does: (event: CustomEvent<M[K]>) => unknown,
  ): void;
  removeEventListener(name: string, does: EventListenerOrEventListenerObject | null): void;
}

/** A row of the table of pages. */
interface PageRow {
  key: string;
  name: string;
  module: string;
  address: string | null;
  go: string | null;
  addresses: string | null;
  under: string | null;
  is_live: boolean;
}

/** Facts about a metric. */
interface Metric {
  key: string;
  unit: string;
  label: string;
  meaning: string;
  full: number | null;
  fullFact: string | null;
  fullWords: string | null;
  section: string;
  scale: "alarm" | "count" | "share";
  words: Record<number, string> | null;
}

/** A bit and its reason. */
type ThrottleReasons = [number, string][];

/** What the hub says of its metrics, as it came with the page. */
interface MetricTable {
  metrics: Metric[];
  sections: [string, string][];
  reasons: ThrottleReasons;
  absence: Record<string, string>;
  absenceWords: string[];
  columns: string[];
}

/** The live socket as other modules use it. */
interface LiveEvents extends Hub.Messages {
  state: LinkState;
  back: null;
}

type LinkState = "connecting" | "live" | "silent" | "lost" | "signed_out";

interface LiveLink extends TypedTarget<LiveEvents> {
  state: LinkState;
  isIdle: boolean;
  retryAt: number | null;
  byeReason?: string;
  ageMs(): number | null;
  connectNow(): void;
  opened(): Promise<void>;
}

interface WindowEventMap {
  "gpudeck-theme": CustomEvent<null>;
  "gpudeck-print": CustomEvent<boolean>;
}

/** What Dash puts on the page for its callbacks. */
declare var dash_clientside: { set_props(id: string, props: object): void };
declare var gpudeck: {
  readonly cell: (uuid: string) => object | null;
  readonly line: (uuid: string, key: string) => unknown[] | null;
  readonly stats: PageStats;
};

/** A page that is shown, as the browser's console reads it. */
interface ShownPage {
  cell?(uuid: string): object | null;
  line?(uuid: string, key: string): unknown[] | null;
  heatmap?: { stats: Partial<PageStats> };
  past?: { shown: number | null } | null;
}

/** The default export of a page's module. */
type PageClass = new (
  root: HTMLElement,
  live: import("../assets/live/live.mjs").Live,
  holds: import("../assets/actions/holds.mjs").Holds,
  store: import("../assets/actions/commands_store.mjs").CommandStore,
) => ShownPage;

interface PageStats {
  redraw_ms?: number | null;
  slowest_redraw_ms?: number | null;
  long_tasks: number;
  longest_task_ms: number;
  link: LinkState;
  at: number | null;
}

/** Single things of the API, by the name of their list. */
interface Listed {
  gpus: Hub.GpuView;
  nodes: Hub.NodeView;
  tasks: Hub.TaskView;
}

type HeadersOf = Record<string, string>;

/** Values and their words. */
type Choices = Iterable<readonly string[]>;

/** A question in a dialog; `submit` gives what it resolves with. */
interface Question<A> {
  title: string;
  lead?: string | Node | (string | Node)[];
  fields?: (Node | string)[];
  verb: string;
  tone?: string;
  submit: (given: FormData) => A | Promise<A>;
  opened?: (form: HTMLFormElement) => void;
}

/** A column of a table: words, or what draws its cell. */
interface Column<I> {
  head: string;
  meaning?: string | null;
  text?: (item: I) => string;
  draw?: (cell: HTMLTableCellElement, item: I) => void;
}

/** A word, what its button does, and traits of the button. */
type RowAction<I> = [string, (item: I) => unknown, Traits?];

/** A part of a cell: tag, class, words and title. */
type Piece = [string, string | null, string, (string | null)?];

/** Items of a list of the API. */
type ItemsOf<P extends string> =
  Hub.Answer<`GET ${P}`> extends { items: infer I extends unknown[] } ? I : never;

/** Values of a form's field, such as an input. */
type Field = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

/** A line of a list as it was drawn, and what draws it again. */
interface DrawnLine<I> {
  root: Element;
  draw(item: I, at: number): void;
}

type TypedTargetClass = new <M>() => TypedTarget<M>;

/** An element in which Plotly has drawn. */
interface PlotElement extends HTMLElement {
  on(name: string, does: (event: any) => void): void;
  layout: any;
}

declare var Plotly: any;

/** Usage against a limit. */
type QuotaUsage = Pick<
  Hub.NodeQuotaHolderView,
  "holder" | "limit" | "used" | "most" | "is_over" | "is_whole" | "sentence"
>;

/** Listeners of the window, by the names of their events. */
type WindowListeners = { [N in keyof WindowEventMap]?: (event: WindowEventMap[N]) => void };

/** A track of the Pool's week, and a moment on it, in UTC seconds. */
interface TrackMoment {
  track: HTMLElement;
  at: number;
}
