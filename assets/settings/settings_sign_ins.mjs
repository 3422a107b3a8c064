// Settings: where one is signed in, and, for admins, who tried.

import { isAdmin, signOutEverywhere } from "../parts/account.mjs";
import { look } from "../parts/api.mjs";
import { make } from "../parts/dom.mjs";
import { change } from "../parts/password_prompt.mjs";
import { parts, timeCell } from "../parts/rows.mjs";
import { Section } from "./settings_section.mjs";

const HOW = { password: "password", link: "one-time link", proxy: "the proxy", again: "password confirmed" };
const OUTCOME = { "signed in": "ok", refused: "lost", throttled: "stale" };

export class SignIns extends Section {
  constructor(root, page) {
    super(root, page, 5_000);
    const isForAdmin = isAdmin(this.person);
    this.sessions = this.table({
      label: "Where you are signed in", key: ({ id }) => id, empty: "No sessions.",
      columns: [
        ...(isForAdmin ? [{ head: "Who", draw: (cell, one) => parts(cell, ["strong", "name", one.user]) }] : []),
        { head: "From", draw: (cell, one) => parts(cell, ["span", "", one.from], one.is_this ? ["span", "pill ok", "this session"] : null) },
        { head: "By", text: ({ how }) => HOW[how] ?? how },
        { head: "Since", draw: timeCell((one) => one.created_at) },
        { head: "Last used", draw: timeCell((one) => one.last_used_at) },
      ],
      actions: (one) => (one.is_this ? [] : [["End", () => this.end(one), { "aria-label": `End the session of ${one.user} from ${one.from}` }]]),
    });
    this.onClick("end-all-sessions", () => this.endAll());
    if (isForAdmin) this.buildAttempts();
  }

  buildAttempts() {
    this.place.append(make("h3", {}, "Sign-in attempts"), make("p", { class: "about" }, "The newest 200."));
    this.attempts = this.table({
      label: "Sign-in attempts", key: (one) => `${one.at} ${one.name} ${one.from}`, empty: "No sign-in attempts yet.",
      columns: [
        { head: "When", draw: timeCell((one) => one.at) },
        { head: "Name as typed", draw: (cell, one) => parts(cell, ["span", "name", one.name]) },
        { head: "From", text: ({ from }) => from },
        { head: "By", text: ({ how }) => HOW[how] ?? how },
        { head: "Outcome", draw: (cell, one) => parts(cell, ["span", `pill ${OUTCOME[one.outcome] ?? ""}`, one.outcome]) },
      ],
    });
  }

  ask() {
    return Promise.all([look("sessions"), this.attempts && look("sign-ins")]);
  }

  take([sessions, attempts]) {
    this.sessions.update(sessions.items.sort((a, b) => Number(b.is_this) - Number(a.is_this) || b.last_used_at - a.last_used_at));
    this.attempts?.update(attempts.items);
  }

  end(one) {
    return this.attempt(() => change("DELETE", `sessions/${encodeURIComponent(one.id)}`), `${one.user} was signed out at ${one.from}.`);
  }

  endAll() {
    return this.sure("Sign out everywhere?", "Sign out everywhere", "All your sessions end, including this one. Tokens stay valid.", signOutEverywhere);
  }
}
