// Types of what is drawn by hand. Not served: types are for `make lint`.

type Canvas = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;
type Levels = ArrayLike<number>;
type Trouble = "waste" | "critical";

/** Colours of states and marks, by their names. */
type Marks = Record<
  | "ground"
  | "quiet"
  | "quietInk"
  | "staleBase"
  | "staleStripe"
  | "staleInk"
  | "lostBase"
  | "lostInk"
  | "offlineInk"
  | "plain"
  | "plainInk"
  | "label"
  | "heading"
  | "ring"
  | "digit"
  | "digitIdle"
  | "memory"
  | "waste"
  | "wasteFill"
  | "wasteBase"
  | "wasteInk"
  | "wasteOn"
  | "warning"
  | "critical"
  | "criticalInk"
  | "paused"
  | "pausedBase"
  | "lease"
  | "leaseBase"
  | "filteredOut",
  string
>;

/** Colours of one theme, as CSS and as pixels, by level. */
interface CellLook {
  marks: Marks;
  css: string[];
  pixels: Uint32Array;
  markPixels: Record<keyof Marks, number>;
  bar?: number;
}

interface Palette {
  theme: Theme;
  marks: Marks;
  css: string[];
  live: CellLook;
  frozen: CellLook;
}

/** Where something is drawn. */
interface CellRoom {
  context: Canvas;
  x: number;
  y: number;
  w: number;
  h: number;
}

interface PlainCell extends CellRoom {
  marks: Marks;
  css: string[];
}

interface FlaggedCell extends PlainCell {
  flags: number;
}

interface MarkedCell extends FlaggedCell {
  code: number;
  isWasted: boolean;
  isPaused: boolean;
}

interface StrokedCell extends CellRoom {
  marks: Marks;
  stroke: number;
}

/** Words of a cell; what is drawn of them depends on the room. */
interface CellWords extends Quantity {
  name: string;
  place: string;
  note: string;
  past?: Levels | null;
}

/** A row of cells: its slots, and where they begin, in CSS pixels. */
interface CellRow {
  y: number;
  slots: Int32Array | number[];
  x: number[];
}

/** Where cells lie, in CSS pixels. */
interface CellPlan {
  width: number;
  height: number;
  cellW: number;
  cellH: number;
  rows: CellRow[];
}

/** By slot: levels, what a filter matches in bits, marks and memory. */
interface ShownCells {
  cells: Uint8Array;
  mask?: Uint8Array | null;
  flags?: Uint8Array | null;
  memory?: Uint8Array | null;
}

interface RasterRow {
  top: number;
  slots: Int32Array | number[];
  left: Int32Array;
  drawn: Uint32Array;
}

interface RasterParts {
  pixels: Uint32Array;
  width: number;
  w: number;
  h: number;
}

/** Where cells lie, in device pixels, and the pixels themselves. */
interface Raster extends Omit<RasterParts, "pixels"> {
  height: number;
  ratio: number;
  cellH: number;
  rows: RasterRow[];
  tiles: Map<number | string, Uint32Array>;
  image: ImageData | null;
  pixels: Uint32Array | null;
  look: CellLook | null;
}

/** A line of a chart. */
interface Stroke {
  stroke: string;
  dash: number[];
}

/** A raster whose pixels were made. */
type PaintedRaster = Raster & RasterParts;
