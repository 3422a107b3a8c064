// The acts that this page knows of: told by the live socket, and asked for where it is silent.

import { get, itemsOf, look } from "../parts/api.mjs";
import { isOpen } from "./action_words.mjs";
import { Teller } from "../parts/dom.mjs";

const ASK_AFTER_MS = 1_500;
const PLANS_EVERY_MS = 5_000;
const KEPT_MS = 600_000;

/**
 * Acts by their ids. A change without a command: one was forgotten.
 * @extends {Teller<{ change: Hub.CommandView | null, plans: object }>}
 */
export class CommandStore extends Teller {
  /** @type {Map<string, Hub.CommandView>} */
  commands = new Map();
  /** @type {Map<string, number>} */
  heardAt = new Map();
  /** @type {Hub.ActionPlanView[]} */
  plans = [];
  /** @type {Set<string>} */
  ownIds = new Set();
  plansText = "";

  /** @param {LiveLink} live */
  constructor(live) {
    super();

    live.addEventListener("command", ({ detail }) => this.take(detail));
    live.addEventListener("back", () => this.lookAround());
    setInterval(() => {
      if (!document.hidden) this.askAgain();
    }, 500);
    setInterval(() => {
      if (!document.hidden) this.lookAtPlans(get);
    }, PLANS_EVERY_MS);
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.lookAround();
    });
    live.opened().then(() => this.lookAround());
  }

  async lookAround() {
    this.lookAtPlans();
    const open = await itemsOf("commands?state=open&limit=100", []);
    open.forEach((command) => this.take(command));
  }

  /** @type {(ask?: (path: string) => Promise<any>) => Promise<void>} */
  async lookAtPlans(ask = look) {
    const plans = await itemsOf("plans", null, ask);
    const text = JSON.stringify(plans);
    if (plans === null || text === this.plansText) return;
    this.plansText = text;
    this.plans = plans.filter(({ state }) => state === "waiting" || state === undefined);
    this.tell("plans");
  }

  // An answer to a question may be older than what the socket told meanwhile.
  /** @type {(command: Hub.CommandView) => void} */
  take(command) {
    const former = this.commands.get(command.id);
    if (
      former !== undefined &&
      (former.updated_at > command.updated_at || (!isOpen(former) && isOpen(command)))
    )
      return;
    this.heardAt.set(command.id, performance.now());
    if (former !== undefined && JSON.stringify(former) === JSON.stringify(command)) return;
    this.commands.set(command.id, command);
    this.tell("change", command);
  }

  /**
   * Adds commands that were requested on this page; they stay until they are read.
   * @type {(commands: Hub.CommandView[]) => void}
   */
  begin(commands) {
    commands.forEach((command) => {
      this.ownIds.add(command.id);
      this.take(command);
    });
  }

  askAgain() {
    const now = performance.now();
    for (const [id, command] of this.commands) {
      const silentMs = now - (this.heardAt.get(id) ?? -Infinity);
      if (!isOpen(command)) {
        if (silentMs > KEPT_MS) this.forget(id);
        continue;
      }
      if (silentMs < ASK_AFTER_MS) continue;
      this.heardAt.set(id, now);
      get(`commands/${encodeURIComponent(id)}`).then(
        (found) => this.take(found),
        (error) => {
          if (error.status === 404) this.forget(id);
        },
      );
    }
  }

  /** @type {(id: string) => void} */
  forget(id) {
    this.commands.delete(id);
    this.heardAt.delete(id);
    this.ownIds.delete(id);
    this.tell("change", null);
  }

  /** Newest first; what others began is shown while it runs. */
  listed() {
    return [...this.commands.values()]
      .filter((command) => isOpen(command) || this.ownIds.has(command.id))
      .sort((a, b) => (b.requested_at ?? 0) - (a.requested_at ?? 0));
  }
}
