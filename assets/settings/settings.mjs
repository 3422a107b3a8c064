// The Settings page: which section is shown, and to whom.

import { isAdmin, me } from "../parts/account.mjs";
import { byId, say, settle, show } from "../parts/dom.mjs";
import { Addresses } from "./settings_addresses.mjs";
import { Nodes } from "./settings_nodes.mjs";
import { Notices } from "./settings_notifications.mjs";
import { SignIns } from "./settings_sign_ins.mjs";
import { Teams } from "./settings_teams.mjs";
import { Tokens } from "./settings_tokens.mjs";
import { Users } from "./settings_users.mjs";
import { You } from "./settings_you.mjs";

const SECTIONS = { users: Users, tokens: Tokens, nodes: Nodes, addresses: Addresses, teams: Teams, notices: Notices, "sign-ins": SignIns, you: You };
const FOR_ADMINS = ["users", "tokens", "nodes", "addresses", "teams", "notices"];

export default class Settings {
  constructor(root, live, holds) {
    Object.assign(this, { root, live, holds, made: new Map(), person: null, chosen: null });
    addEventListener("hashchange", () => this.choose());
    me().then((person) => this.begin(person), (error) => { say(byId("settings-refused"), error.message); settle(root); });
  }

  begin(person) {
    this.person = person;
    for (const link of this.links()) show(link, this.mayOpen(link.dataset.section));
    this.choose();
    settle(this.root);
  }

  links() {
    return [...this.root.querySelectorAll("[data-section]")];
  }

  mayOpen(name) {
    return isAdmin(this.person) || !FOR_ADMINS.includes(name);
  }

  choose() {
    if (this.person === null) return;
    const named = location.hash.slice(1).split("/")[0];
    const first = Object.keys(SECTIONS).find((name) => this.mayOpen(name));
    this.chosen = named in SECTIONS ? named : this.chosen ?? first;
    const isOpen = this.mayOpen(this.chosen);
    for (const link of this.links()) link.setAttribute("aria-current", String(link.dataset.section === this.chosen));
    for (const name of Object.keys(SECTIONS)) show(byId(`section-${name}`), isOpen && name === this.chosen);
    show(byId("settings-refused"), !isOpen);
    if (isOpen) this.section(this.chosen).look();
    else say(byId("settings-refused"), `This section is for admins. You are signed in as ${this.person.name}, whose role is ${this.person.role}.`);
  }

  section(name) {
    if (!this.made.has(name)) this.made.set(name, new SECTIONS[name](byId(`section-${name}`), this));
    return this.made.get(name);
  }
}
