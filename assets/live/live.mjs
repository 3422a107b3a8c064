// The live socket: the only place that speaks docs/internals/live.md.

import { csrfToken, forgetAsked } from "../parts/api.mjs";
import { Teller } from "../parts/dom.mjs";
import "../vendor/socket.io-client/socket.io.msgpack.min.js";

const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 10_000;
// The hub sends cells every second; longer silence than this is not live any more.
const SILENCE_MS = 4_000;
// A hub that is being started again may take a connection and not answer it.
const ANSWER_MS = 4_000;
// So long what a page asks first waits for the socket: asked once, and no change is missed between.
const OPENING_MS = 2_000;

/**
 * Full jitter: a hub that comes back must not meet all its viewers in one second.
 * @param {number} attempt
 * @param {number} random
 */
function waitBefore(attempt, random = Math.random()) {
  return random * Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);
}

/**
 * Messages as received, and `state`; `back`: what was asked before may be old.
 * @extends {Teller<LiveEvents>}
 */
export class Live extends Teller {
  /** @type {LinkState} */
  state = "connecting";
  /** @type {Promise<void> | null} */
  opening = null;
  /** @type {number | null} */
  heardAt = null;
  /** @type {number | null} */
  retryAt = null;
  /** @type {{ metric: string, filter: string } | null} */
  topic = null;
  /** @type {string[]} */
  lined = [];
  /** @type {number | undefined} */
  timer;
  /** @type {string | undefined} */
  byeReason;

  /**
   * A page that shows nothing live holds the socket to know how it stands.
   * @param {{ is_live: boolean }} page
   */
  constructor({ is_live: isLive }) {
    super();
    this.isIdle = !isLive;
    this.isFirst = true;
    this.attempt = 0;
    this.isTrying = false;
    this.socket = this.makeSocket();
    setInterval(() => this.checkSilence(), 1_000);
    document.addEventListener("visibilitychange", () => this.onVisibility());
    addEventListener("online", () => this.connectNow());
    // A page kept for going back holds a socket that the browser has closed.
    addEventListener("pageshow", (event) => {
      if (event.persisted) this.connectNow();
    });
    this.connectNow();
  }

  makeSocket() {
    const socket = globalThis.io("/live", {
      transports: ["websocket"],
      reconnection: false,
      autoConnect: false,
      timeout: ANSWER_MS,
      auth: (/** @type {(word: object) => void} */ give) => give({ csrf: csrfToken() }),
    });
    socket.on("connect", () => this.onConnect());
    socket.on("connect_error", () => this.onLost());
    socket.on("disconnect", () => this.onLost());
    for (const name of [
      "layout",
      "cells",
      "owners",
      "totals",
      "filter",
      "bye",
      "command",
      "hold",
      "lines",
      "events",
      "alert",
      "leases",
      "lease",
      "claim",
    ]) {
      socket.on(name, (message) => this.onMessage(name, message));
    }
    return socket;
  }

  /** @type {(metric: string, filter: string) => void} */
  watch(metric, filter) {
    this.topic = { metric, filter };
    if (this.socket.connected) this.socket.emit("watch", this.topic);
  }

  /**
   * Subscribes to each sample of these GPUs.
   * @type {(uuids: string[]) => void}
   */
  lines(uuids) {
    const isAsked = uuids.length > 0 || this.lined.length > 0;
    this.lined = uuids;
    this.isIdle = uuids.length === 0; // then nothing comes
    if (!this.socket.connected) return;
    if (this.isIdle) this.enter("live");
    if (isAsked) this.socket.emit("lines", { gpus: uuids });
  }

  onConnect() {
    clearTimeout(this.timer);
    this.isTrying = false;
    this.attempt = 0;
    this.retryAt = null;
    if (this.isIdle) this.enter("live");
    if (!document.hidden) this.askAgain();
  }

  askAgain() {
    if (this.topic !== null) this.socket.emit("watch", this.topic);
    if (this.lined.length > 0) this.socket.emit("lines", { gpus: this.lined });
  }

  /** @type {(name: string, message: object) => void} */
  onMessage(name, message) {
    if (name === "cells" || name === "totals" || name === "lines") {
      this.heardAt = performance.now();
      this.enter("live");
    }
    this.dispatchEvent(new CustomEvent(name, { detail: message }));
  }

  async onLost() {
    this.isTrying = false;
    if (this.state === "signed_out") return;
    this.enter("lost");
    if (await isSignedOut()) {
      this.enter("signed_out");
      return;
    }
    const wait = waitBefore(this.attempt);
    this.attempt += 1;
    this.retryAt = performance.now() + wait;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connectNow(), wait);
  }

  // One attempt at a time: a second connect() while the first is being answered greets the hub
  // twice on one connection, and the hub ends it.
  connectNow() {
    if (this.isTrying || this.socket.connected || this.state === "signed_out") return;
    clearTimeout(this.timer);
    this.retryAt = null;
    this.isTrying = true;
    this.socket.connect();
    // The library's own time-out ends with the websocket's handshake.
    this.timer = setTimeout(() => this.giveUp(), 2 * ANSWER_MS);
  }

  giveUp() {
    if (!this.isTrying) return;
    this.socket.disconnect();
    this.onLost();
  }

  checkSilence() {
    if (
      this.state === "live" &&
      !this.isIdle &&
      !document.hidden &&
      (this.ageMs() ?? 0) > SILENCE_MS
    )
      this.enter("silent");
  }

  onVisibility() {
    if (!this.socket.connected) {
      if (!document.hidden) this.connectNow();
      return;
    }
    if (document.hidden) this.socket.emit("hide");
    else {
      this.heardAt = performance.now();
      this.askAgain();
    }
  }

  ageMs() {
    return this.heardAt === null ? null : performance.now() - this.heardAt;
  }

  /** @type {(state: LinkState) => void} */
  enter(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
    if (state !== "live") {
      this.isFirst = false;
      return;
    }
    if (!this.isFirst) {
      forgetAsked();
      this.dispatchEvent(new CustomEvent("back"));
    }
    this.isFirst = false;
  }

  /**
   * Resolves when the socket is open, or after a moment in which it is not.
   * @type {() => Promise<void>}
   */
  opened() {
    this.opening ??= new Promise((done) => {
      if (this.state !== "connecting") {
        done();
        return;
      }
      this.addEventListener("state", () => done(), { once: true });
      setTimeout(() => {
        if (this.state === "connecting") this.isFirst = false;
        done();
      }, OPENING_MS);
    });
    return this.opening;
  }
}

// A refused upgrade tells a script nothing, so the API is asked why.
async function isSignedOut() {
  try {
    const signal = AbortSignal.timeout(ANSWER_MS);
    return (
      (await fetch("/api/v1/nodes?limit=1", { credentials: "same-origin", signal })).status === 401
    );
  } catch {
    return false;
  }
}
