// The lists behind the numbers over the map: each row with what may be done about it.

/** @import { Attention } from "./attention.mjs" */

import { get, lookAtAll } from "../parts/api.mjs";
import { Lines, allWithin, byId, make, redraw, say, show, targetOf } from "../parts/dom.mjs";
import { age, bytesWords, plural } from "../parts/format.mjs";
import { claimWords } from "./gpu_words.mjs";
import { grouped } from "../parts/grouped.mjs";
import { me } from "../parts/account.mjs";
import { isSilenced, placeOf } from "../alerts/alert_words.mjs";
import { placesWords } from "../pool/pool_model.mjs";
import { drawActs } from "../tasks/act_buttons.mjs";
import { shortModel } from "./gpu_words.mjs";

const MOST_ROWS = 100;
const [MARGIN, NARROW] = [16, 760];
const TASKS_EVERY_MS = 5_000;
/** @type {Record<string, string>} */
const TITLES = {
  wasted: "Wasted GPUs, worst first",
  free: "Free GPUs",
  attention: "Needs attention, worst first",
  queue: "Waiting claims, next first",
};
/** @type {Record<string, [string, string] | null>} */
const MORE = {
  wasted: null,
  free: ["/pool", "Pool"],
  attention: ["/alerts", "All alerts"],
  queue: ["/pool", "Pool"],
};
/** @type {Record<string, string>} */
const NONE = {
  wasted: "No GPU is wasted.",
  free: "No GPU is free.",
  attention: "No critical alert or warning is firing.",
  queue: "The queue is empty.",
};

/** @type {Record<string, (lists: AttentionLists) => AttentionRow[]>} */
const ROWS = {
  wasted: (lists) => lists.wasted(),
  free: (lists) => lists.free(),
  attention: (lists) => lists.alerts(),
  queue: (lists) => lists.queue(),
};

export class AttentionLists {
  /** @type {string | null} */
  open = null;
  /** @type {Person | null} */
  person = null;
  /** @type {Map<string, { uuid: string, task: Hub.TaskView }[]>} */
  tasks = new Map();

  /** @param {Attention} attention */
  constructor(attention) {
    this.attention = attention;

    this.tasksAt = -Infinity;
    this.panel = byId("attention-panel");
    this.none = make("p", { class: "events-none" });
    this.list = make("ul", { class: "events attention-rows" });
    /** @type {Lines<AttentionRow>} */
    this.lines = new Lines(
      this.list,
      ({ key }) => key,
      () => this.line(),
    );
    byId("attention-list").append(this.list, this.none);
    byId("strip").addEventListener("click", (event) => {
      /** @type {HTMLElement | null} */
      const card = targetOf(event).closest("[data-card]");
      this.toggle(card?.dataset.card);
    });
    byId("attention-close").addEventListener("click", () => this.close());
    document.addEventListener("pointerdown", (event) => {
      if (this.isOpen && targetOf(event).closest("#attention-panel, #strip, dialog") === null)
        this.close(false);
    });
    me().then(
      (person) => {
        this.person = person;
        this.refresh();
      },
      () => {},
    );
  }

  get isOpen() {
    return this.open !== null;
  }

  /** @type {(key: string | undefined) => void} */
  toggle(key) {
    if (
      key === undefined ||
      this.attention.shown === null ||
      (this.attention.isThen && key === "queue")
    )
      return;
    if (this.open === key) {
      this.close();
      return;
    }
    this.mark(key);
    say(byId("attention-title"), TITLES[key]);
    const [href, words] = MORE[key] ?? ["", ""];
    show(byId("attention-more"), href !== "");
    byId("attention-more").setAttribute("href", href);
    say(byId("attention-more"), words);
    show(this.panel, true);
    // Below its own number, as far as the window lets it.
    const left = Math.min(
      byId(`card-${key}`).offsetLeft,
      (this.panel.offsetParent?.clientWidth ?? innerWidth) - this.panel.offsetWidth - MARGIN,
    );
    this.panel.style.left = innerWidth > NARROW ? `${Math.max(MARGIN, left)}px` : "";
    this.panel.focus({ preventScroll: true });
    this.refresh();
  }

  /** @type {(isFocused?: boolean) => void} */
  close(isFocused = true) {
    const key = this.open;
    this.mark(null);
    show(this.panel, false);
    if (isFocused && key !== null) byId(`card-${key}`).focus({ preventScroll: true });
  }

  /** @type {(key: string | null) => void} */
  mark(key) {
    this.open = key;
    for (const card of allWithin(byId("strip"), ":scope > *"))
      card.setAttribute("aria-expanded", String(card.dataset.card === key));
  }

  refresh() {
    const { open } = this;
    if (open === null || this.attention.shown === null) return;
    const rows = ROWS[open](this);
    this.lines.draw(rows.slice(0, MOST_ROWS));
    show(this.none, rows.length === 0);
    say(this.none, NONE[open]);
    if (open === "wasted") this.askTasks();
  }

  async askTasks() {
    if (this.attention.isThen) {
      this.tasks = new Map();
      return;
    } // nothing acts on what is over
    if (performance.now() - this.tasksAt < TASKS_EVERY_MS) return;
    this.tasksAt = performance.now();
    const wasted = `&filter=${encodeURIComponent("state:wasted")}`;
    const tasks = await lookAtAll("tasks", wasted, get).catch(() => []);
    this.tasks = grouped(
      tasks.flatMap((task) => task.gpus.map(({ uuid }) => ({ uuid, task }))),
      ({ uuid }) => uuid,
    );
    this.refresh();
  }

  /** @type {() => DrawnLine<AttentionRow>} */
  line() {
    const [what, detail, place, acts] = [
      make("strong", {}),
      make("span", { class: "event-text" }),
      make("div", { class: "attention-place" }),
      make("div", { class: "task-acts" }),
    ];
    const root = make(
      "li",
      { class: "event attention-row" },
      make("div", { class: "attention-words" }, what, detail),
      place,
      acts,
    );
    /** @type {(item: AttentionRow) => void} */
    const draw = (item) => {
      root.classList.toggle("critical", item.isCritical ?? false);
      say(what, item.what);
      say(detail, item.detail);
      redraw(
        place,
        item.places.map(({ words }) => words),
        () =>
          item.places.map(({ words, uuid, href, filter }) =>
            this.way(words, { uuid, href, filter }),
          ),
      );
      const task = item.task ?? null;
      drawActs(acts, task, this.person, (/** @type {Hub.ActionRow} */ { id, label }) => ({
        "class": `row-act ${id}`,
        "aria-label": `${label} task ${task?.pid}`,
      }));
    };
    return { root, draw };
  }

  /** @type {(words: string, way: Omit<Way, "words">) => HTMLElement} */
  way(words, { uuid, href, filter }) {
    if (href !== undefined) return make("a", { class: "row-act", href }, words);
    const go = () => {
      this.close(false);
      if (uuid === undefined) this.attention.tell("seek", { filter: filter ?? "" });
      else this.attention.tell("open", { uuid });
    };
    return make("button", { type: "button", class: "row-act", onclick: go }, words);
  }

  // -- rows: {key, what, detail, places: ways to it, task}

  /** @type {() => AttentionRow[]} */
  wasted() {
    const { picture, shown: totals } = this.attention;
    return this.attention.wasted().map(({ slot, since, bytes }) => {
      const uuid = picture.uuids[slot];
      const place = `${picture.host(slot)} · GPU ${picture.placeName(slot)}`;
      return {
        key: uuid,
        what: picture.ownerName(slot),
        detail: `idle ${age((totals?.at ?? NaN) - since)}, ${bytesWords(bytes)} held`,
        places: [{ words: place, uuid }],
        task: this.tasks.get(uuid)?.[0].task,
      };
    });
  }

  /** @type {() => AttentionRow[]} */
  free() {
    const { picture } = this.attention;
    const byModel = [...grouped(picture.freeSlots(), (slot) => picture.modelName(slot))].sort(
      ([, one], [, other]) => other.length - one.length,
    );
    return byModel.flatMap(([model, slots]) =>
      [...grouped(slots, (slot) => picture.host(slot))]
        .sort(([, one], [, other]) => other.length - one.length)
        .map(([host, those]) => ({
          key: `${model} ${host}`,
          what: plural(those.length, "GPU"),
          detail: `${shortModel(model)}, GPU ${placesWords(those.map((slot) => picture.placeName(slot)))}`,
          places: [{ words: host, filter: `state:free & node:${host}` }],
        })),
    );
  }

  /**
   * Returns a row for each fault, of however many GPUs; silenced alerts are the last one.
   * @type {() => AttentionRow[]}
   */
  alerts() {
    const silenced = this.attention.alerts(isSilenced);
    const last = {
      key: "silenced",
      what: "Silenced",
      detail: silenced.map((one) => `${one.title}: ${placeOf(one)}`).join("; "),
      places: [{ words: "Show", href: "/alerts#silenced" }],
    };
    return [...this.countedRows(), ...(silenced.length === 0 ? [] : [last])];
  }

  /** @type {() => AttentionRow[]} */
  countedRows() {
    const now = this.attention.isThen ? (this.attention.shown?.at ?? NaN) : Date.now() / 1000;
    return [...grouped(this.attention.alerts(), ({ rule }) => rule)].map(([rule, those]) => {
      const hosts = new Set(those.map(({ host }) => host));
      const [first] = those;
      return {
        key: rule,
        what: first.title,
        isCritical: first.severity === "crit",
        detail:
          those.length === 1
            ? `${placeOf(first)}, for ${age(now - first.since)}`
            : `${plural(those.length, "alert")} on ${plural(hosts.size, "node")}, longest for ${age(now - Math.min(...those.map(({ since }) => since)))}`,
        places: those
          .slice(0, 4)
          .map((alert) =>
            alert.of === "node" || alert.gpus.length === 0
              ? {
                  words: placeOf(alert),
                  href: alert.node === "" ? "/alerts" : `/node/${encodeURIComponent(alert.node)}`,
                }
              : { words: placeOf(alert), uuid: alert.gpus[0] },
          ),
      };
    });
  }

  /** @type {() => AttentionRow[]} */
  queue() {
    return this.attention
      .waiting()
      .map((claim) => ({
        key: claim.id,
        what: claim.owner,
        detail: claimWords(claim, Date.now() / 1000),
        places: [],
      }));
  }
}
