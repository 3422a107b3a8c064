// Frame of every page: theme, keys, help, sign-out, and the connection to the hub.

import { mountAccount } from "./account.mjs";
import { allWithin, byId, isShortcut, make, say, show, theme, within } from "./dom.mjs";
import { rememberFocus } from "./focus.mjs";
import { age, plural } from "./format.mjs";
import { PAGES } from "./pages.mjs";
import { mountPrinting } from "./printing.mjs";
import { mountTips } from "./tips.mjs";

/** @type {Record<LinkState, string>} */
const WORDS = {
  connecting: "Connecting",
  live: "Live",
  silent: "Silent",
  lost: "Not connected",
  signed_out: "Signed out",
};

/** @type {(live: LiveLink) => void} */
export function mountShell(live) {
  byId("theme").addEventListener("click", toggleTheme);
  byId("help").addEventListener("click", openHelp);
  byId("help-close").addEventListener("click", () => helpDialog().close());
  mountAccount();
  mountTips();
  mountPrinting(live);
  document.addEventListener("keydown", onKey);
  live.addEventListener("state", () => drawLink(live));
  live.addEventListener("bye", (event) => {
    live.byeReason = event.detail.reason;
  });
  setInterval(() => drawLink(live), 500);
  drawLink(live);
}

/** @type {() => HTMLDialogElement} */
const helpDialog = () => byId("help-dialog");

function toggleTheme() {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("gpudeck.theme", next);
  } catch {
    /* it then lasts until the next load */
  }
  dispatchEvent(new CustomEvent("gpudeck-theme"));
}

/** Opens the help, with the keys that do something on this page. */
function openHelp() {
  const dialog = helpDialog();
  if (dialog.open) return;
  const page = document.querySelector("main > :not([hidden])")?.id;
  for (const part of allWithin(dialog, "[data-page]")) show(part, part.dataset.page === page);
  sayCost();
  dialog.addEventListener("close", rememberFocus(), { once: true });
  dialog.showModal();
}

/** Says what drawing costs this browser, on pages with a map. */
function sayCost() {
  const {
    redraw_ms: redraw,
    slowest_redraw_ms: slowest,
    long_tasks: long,
  } = globalThis.gpudeck.stats;
  const isDrawn = typeof redraw === "number" && typeof slowest === "number";
  show(byId("help-cost"), isDrawn);
  if (isDrawn)
    say(
      byId("help-cost"),
      `This page: map drawn in ${redraw.toFixed(1)} ms, at most ${slowest.toFixed(1)} ms; ${plural(long, "task")} over 50 ms since it was opened.`,
    );
}

// After g.
/** @type {Record<string, string>} */
const PLACES = Object.fromEntries(
  PAGES.flatMap(({ go, address }) => (go === null || address === null ? [] : [[go, address]])),
);
let lastG = -Infinity;

/** @type {(event: KeyboardEvent) => void} */
function onKey(event) {
  if (!isShortcut(event)) return;
  if (event.key in PLACES && performance.now() - lastG < 1_000) location.assign(PLACES[event.key]);
  else if (event.key === "g") {
    lastG = performance.now();
    return;
  } else if (event.key === "?") openHelp();
  else if (event.key === "t") toggleTheme();
  lastG = -Infinity;
}

/** @type {(live: LiveLink) => void} */
function drawLink(live) {
  const link = byId("link");
  if (link === null) return;
  link.className = `link ${live.state}`;
  // Beside a past moment the word would be a lie.
  const isThen = live.state === "live" && document.querySelector("main .then") !== null;
  say(byId("link-words"), isThen ? "Connected" : WORDS[live.state]);
  drawBanner(live);
}

/** @type {(live: LiveLink) => void} */
function drawBanner(live) {
  const banner = byId("banner");
  const isAway = ["silent", "lost", "signed_out"].includes(live.state);
  document.documentElement.classList.toggle("away", isAway);
  show(banner, isAway);
  if (!isAway) {
    banner.replaceChildren();
    return;
  }
  if (banner.childElementCount === 0) fillBanner(banner, live);
  const [what, when] = bannerWords(live);
  say(within(banner, ".banner-what"), what);
  say(within(banner, ".banner-when"), when);
  show(within(banner, ".banner-retry"), live.state === "lost");
  show(within(banner, ".banner-sign-in"), live.state === "signed_out");
}

/** @type {(banner: HTMLElement, live: LiveLink) => void} */
function fillBanner(banner, live) {
  banner.append(
    make("strong", { class: "banner-what" }),
    // The count of seconds is for the eye; read aloud it would never end.
    make("span", { "class": "banner-when", "aria-hidden": "true" }),
    make(
      "button",
      { type: "button", class: "button banner-retry", onclick: () => live.connectNow() },
      "Connect now",
    ),
    make("a", { href: "/sign-in", class: "button banner-sign-in" }, "Sign in"),
  );
}

/** @type {(live: LiveLink) => [string, string]} */
function bannerWords(live) {
  const ageMs = live.ageMs();
  const old = live.isIdle
    ? "The data shown may be old."
    : ageMs === null
      ? "No data yet."
      : `The data shown is ${age(ageMs / 1000)} old.`;
  if (live.state === "signed_out") return ["You are signed out.", old];
  if (live.state === "silent") return ["Connected, but the hub sends no data.", old];
  const wait =
    live.retryAt === null
      ? "Connecting …"
      : `Retrying in ${Math.ceil((live.retryAt - performance.now()) / 1000)} s.`;
  return ["Not connected to the hub.", `${old} ${wait}`];
}
