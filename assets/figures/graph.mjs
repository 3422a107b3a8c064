// A figure that the hub makes: what a page wants to see goes to a Dash callback (dashboard/pages/graphs.py), which
// answers with a dcc.Graph. Dash's scripts for it, and Plotly, come when the first is asked for.

import { pageColours, strokeOf } from "../parts/page_colours.mjs";
import { plotly } from "./plotly.mjs";
import { DashAnswers } from "../parts/dash_answers.mjs";
import { byId, make } from "../parts/dom.mjs";
import { zoneOffset } from "../parts/time_ranges.mjs";

const DRAWN_WITHIN_MS = 10_000;
const NOT_LOADED = "Charts could not be loaded from the hub. Reload the page.";
/** @type {Promise<void> | null} */
let coming = null;

export class Graph {
  /** @param {string} id */
  constructor(id) {
    this.place = byId(id);
    this.answers = new DashAnswers(id);
  }

  /** Number of the newest request. */
  get number() {
    return this.answers.number;
  }

  /**
   * The facts shown next to the figure; throws if there is no figure.
   * @type {(view: object, how: { height: number, isPan?: boolean, at: number }) => Promise<any>}
   */
  async ask(view, { height, isPan = false, at }) {
    await scripts();
    const is_drawn = this.place.querySelector(".js-plotly-plot") !== null;
    const { figure, ...facts } = await this.answers.ask({
      ...view,
      is_drawn,
      style: styleNow(height, isPan, at),
    });
    if (figure !== undefined)
      globalThis.dash_clientside.set_props(`${this.place.id}-figure`, { figure });
    return facts;
  }

  /**
   * Plotly's element. It comes a moment after the answer.
   * @type {() => Promise<PlotElement>}
   */
  async plot() {
    const until = performance.now() + DRAWN_WITHIN_MS;
    for (;;) {
      /** @type {PlotElement | null} */
      const plot = this.place.querySelector(".js-plotly-plot");
      if (plot?.on !== undefined) return plot;
      if (performance.now() > until) throw new Error("The figure was not drawn.");
      await new Promise(requestAnimationFrame);
    }
  }
}

/**
 * @param {number} height
 * @param {boolean} is_pan
 * @param {number} at
 */
function styleNow(height, is_pan, at) {
  const { ground, raised, line, ink, soft, font, textPx, marks, theme } = pageColours();
  const lines = Array.from({ length: 8 }, (_, of) => strokeOf(theme, of).stroke);
  return {
    colours: {
      ground,
      raised,
      line,
      ink,
      soft,
      font,
      warn: marks.warning,
      bad: marks.critical,
      lines,
    },
    zone_s: zoneOffset(at),
    height: Math.round(height),
    text_px: textPx,
    is_pan,
  };
}

async function scripts() {
  coming ??= load().catch((error) => {
    coming = null;
    throw error;
  });
  await coming;
}

/** Dash looks for Plotly when its Graph is made, and for the parts of a component in the order of its list. */
async function load() {
  await plotly();
  for (const src of JSON.parse(byId("graph-scripts").textContent)) {
    await new Promise((resolve, reject) =>
      document.head.append(
        make("script", { src, onload: resolve, onerror: () => reject(new Error(NOT_LOADED)) }),
      ),
    );
  }
}
