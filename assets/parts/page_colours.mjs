// Colours of the page and of its lines, for what is drawn by hand.

import { make, theme } from "./dom.mjs";

const HUES = 8; // of css/tokens.css
/** @type {Record<Theme, string[]> | null} */
let hues = null; // of both themes
// Of GPUs that have a legend of their own and are looked at together: no line calls for a look, and
// the first two, which are compared most, are the furthest apart.
/** @type {Record<Theme, string[]>} */
const CALM = {
  dark: ["#6f93a8", "#a9a27c", "#8f9bc4", "#7fb0a6"],
  light: ["#3f6f8a", "#7d7340", "#5566a0", "#2f7d70"],
};
// Of the GPUs of a node, whose tiles name them: amber and red are seen at once.
const QUIET = { dark: "#7f8d9c", light: "#6a7786" };
/** @type {number[][]} */
const DASHES = [[], [7, 3], [2, 3], [10, 3, 2, 3]];

/** @type {(hues: string[], at: number) => Stroke} */
const strokeIn = (hues, at) => ({
  stroke: hues[at % hues.length],
  dash: DASHES[Math.floor(at / hues.length) % DASHES.length],
});

/** @type {(theme: Theme, at: number) => Stroke} */
export const strokeOf = (theme, at) => strokeIn((hues ??= huesOf())[theme], at);

/**
 * Returns the stroke of a GPU among others: amber or red where something is wrong, else calm, and grey
 * where its tile names it. `tone`: one of gpu_trouble.mjs or undefined.
 * @type {(theme: Theme, at: number, tone: Trouble | undefined, colours: Record<Trouble, string>,
 *   isQuiet: boolean) => Stroke}
 */
export function strokeAmong(theme, at, tone, colours, isQuiet) {
  if (tone !== undefined) return { stroke: colours[tone], dash: [] };
  return isQuiet ? { stroke: QUIET[theme], dash: [] } : strokeIn(CALM[theme], at);
}

/** @type {(name: string) => string} */
const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * A custom property is read as it is written: light-dark() with the colour of either theme.
 * @type {() => Record<Theme, string[]>}
 */
function huesOf() {
  const pairs = Array.from(
    { length: HUES },
    (_, at) => styleOf(`--hue-${at + 1}`).match(/#\w+/g) ?? [],
  );
  return { light: pairs.map(([light]) => light), dark: pairs.map(([, dark]) => dark) };
}

/** Returns the page's colours as they are now, for what is drawn on a canvas. */
export function pageColours() {
  const probe = document.body.appendChild(make("span", { hidden: "hidden" }));
  /** @type {(name: string) => string} */
  const read = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const colours = {
    theme: theme(),
    font: styleOf("--font"),
    textPx: parseFloat(styleOf("--tiny")),
    heightPx: parseFloat(styleOf("--chart-height")),
    ground: read("raised"),
    raised: read("higher"),
    ink: read("ink"),
    soft: read("ink-soft"),
    line: read("line"),
    limit: read("line-strong"),
    waste: read("waste"),
    critical: read("critical"),
    bands: { power: read("warn-ground"), heat: read("bad-ground") },
    marks: { info: read("ink-soft"), warning: read("warn"), critical: read("bad") },
  };
  probe.remove();
  return colours;
}
