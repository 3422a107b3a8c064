// The subject of the History page: the fleet or a part of it, a node, GPUs, or an owner; and its choice.

import { look, lookAtAll, several } from "../parts/api.mjs";
import { make, say, show } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";

const MOST = 8;
const OWNER = "user:";
const TEAM = "team:";
const FLEET = "fleet";
const PARTS = ["group", "model"];
const OWNERS_OF_S = 30 * 86_400;

export class Subject {
  constructor(query, place, chips, changed) {
    Object.assign(this, { chips, changed, known: new Map(), owner: null, team: null, node: null, nodeFacts: null, candidates: [], gpus: query.getAll("gpu").slice(0, 64) });
    this.fleet = null; // {}, {group} or {model}
    const part = PARTS.find((name) => query.get(name));
    if (query.get("owner")) this.owner = query.get("owner").replace(/^user:/, "");
    else if (query.get("team")) this.team = query.get("team");
    else if (query.get("node")) this.node = query.get("node");
    else if (this.gpus.length === 0) this.fleet = part === undefined ? {} : { [part]: query.get(part) };
    this.input = make("input", { id: "past-what", type: "search", list: "past-whats", autocomplete: "off", spellcheck: "false", autocapitalize: "none", maxlength: "256", placeholder: "fleet, node, user:name", title: "fleet, group:name, model:name, a node (host name), a GPU (host:number), user:name or team:name" });
    this.list = make("datalist", { id: "past-whats" });
    place.append(this.input, this.list);
    this.input.addEventListener("focus", () => { this.input.select(); this.offer(); });
    this.input.addEventListener("change", () => this.take(this.input.value.trim()));
    chips.addEventListener("click", ({ target }) => { const chip = target.closest("[data-uuid]"); if (chip !== null) this.toggle(chip.dataset.uuid); });
  }

  get kind() {
    return this.fleet !== null ? "fleet" : this.owner !== null ? "owner" : this.team !== null ? "team" : this.node !== null ? "node" : "gpus";
  }

  /** Lines per GPU, of metrics to choose; else the sums of one figure. */
  get hasLines() {
    return this.fleet === null && this.owner === null && this.team === null;
  }

  /** Of what the figure is, where it is one of sums. */
  get asked() {
    if (this.team !== null) return { by: "team", name: this.team };
    if (this.owner !== null) return { by: "user", name: this.owner };
    const [[by, name]] = [...Object.entries(this.fleet), ["fleet", ""]];
    return { by, name };
  }

  get isEmpty() {
    return this.hasLines && this.gpus.length === 0;
  }

  emptyWords() {
    return this.node === null ? "No node has reported a GPU yet." : "This node has reported no GPU.";
  }

  async find() {
    if (this.node !== null) await this.findNode();
    else if (this.hasLines) await this.findGpus();
    this.input.value = this.typed;
  }

  /** The subject as one types it. */
  get typed() {
    if (this.fleet !== null) return Object.entries(this.fleet).map(([part, name]) => `${part}:${name}`)[0] ?? FLEET;
    if (this.owner !== null) return `${OWNER}${this.owner}`;
    if (this.team !== null) return `${TEAM}${this.team}`;
    if (this.node !== null) return this.nodeFacts.host;
    return this.gpus.length === 1 ? this.label(this.gpus[0]) : "";
  }

  async findNode() {
    const { node } = this;
    const [facts, gpus] = await Promise.all([look(`nodes/${encodeURIComponent(node)}`), lookAtAll("gpus", `&node=${encodeURIComponent(node)}`)]);
    this.nodeFacts = facts;
    this.keep(gpus);
    const chosen = gpus.map(({ uuid }) => uuid).filter((uuid) => this.gpus.includes(uuid));
    this.gpus = (chosen.length > 0 ? chosen : this.candidates).slice(0, MOST);
  }

  async findGpus() {
    const found = await several("gpus", this.gpus);
    this.keep(this.gpus.map((uuid) => found.find((gpu) => gpu.uuid === uuid) ?? { uuid }));
    this.gpus = this.candidates.slice(0, MOST);
  }

  keep(gpus) {
    for (const gpu of gpus) this.known.set(gpu.uuid, gpu);
    this.candidates = gpus.map(({ uuid }) => uuid);
  }

  get nodes() {
    return [...new Set(this.gpus.map((uuid) => this.known.get(uuid)?.node).filter((node) => node !== undefined))];
  }

  /** A GPU that no node reports any more has its past all the same. */
  label(uuid) {
    const gpu = this.known.get(uuid);
    if (gpu?.host === undefined) return uuid.length > 16 ? `${uuid.slice(0, 16)}…` : uuid;
    return this.node !== null ? `GPU ${gpu.place}` : `${gpu.host}:${gpu.place}`;
  }

  get title() {
    if (this.fleet !== null) return Object.values(this.fleet)[0] ?? "Fleet";
    if ((this.owner ?? this.team) !== null) return this.owner ?? this.team;
    if (this.node !== null) return this.nodeFacts?.host ?? this.node;
    if (this.gpus.length === 0) return "History";
    return this.candidates.length === 1 ? this.label(this.gpus[0]) : plural(this.candidates.length, "GPU");
  }

  /** Why nothing of this metric is there, where all of them say the same now; else null. */
  why(key) {
    const reasons = new Set(this.gpus.map((uuid) => this.known.get(uuid)?.missing?.[key]));
    return reasons.size === 1 ? [...reasons][0] ?? null : null;
  }

  get subtitle() {
    if (this.fleet !== null) return { group: "a group of nodes", model: "all GPUs of this model" }[Object.keys(this.fleet)[0]] ?? "all GPUs";
    if (this.owner !== null) return "usage on all nodes";
    if (this.team !== null) return "usage of the team's owners, by current membership";
    if (this.candidates.length > MOST) return `${MOST} of ${this.candidates.length} GPUs at most`;
    return this.candidates.length === 1 ? this.known.get(this.gpus[0])?.name ?? "" : "";
  }

  get liveAddress() {
    if (this.fleet !== null) return this.fleet.model === undefined ? "/" : `/?filter=${encodeURIComponent(`model:"${this.fleet.model}"`)}`;
    if (this.owner !== null) return `/tasks?filter=${encodeURIComponent(`user:${this.owner}`)}`;
    if (this.team !== null) return null;
    if (this.node !== null) return `/node/${encodeURIComponent(this.node)}`;
    if (this.gpus.length === 0) return null;
    return this.gpus.length === 1 ? `/gpu/${encodeURIComponent(this.gpus[0])}` : `/compare?${new URLSearchParams(this.gpus.map((uuid) => ["gpu", uuid]))}`;
  }

  write(query) {
    if (this.fleet !== null) { for (const [part, name] of Object.entries(this.fleet)) query.set(part, name); return query; }
    if (this.owner !== null) query.set("owner", `${OWNER}${this.owner}`);
    if (this.team !== null) query.set("team", this.team);
    if (this.node !== null) query.set("node", this.node);
    const isAll = this.gpus.join() === this.candidates.slice(0, MOST).join();
    if (this.hasLines && (this.node === null || !isAll)) this.gpus.forEach((uuid) => query.append("gpu", uuid));
    return query;
  }

  toggle(uuid) {
    const has = this.gpus.includes(uuid);
    if (has && this.gpus.length === 1) return;
    if (!has && this.gpus.length === MOST) return;
    this.gpus = this.candidates.filter((one) => (one === uuid ? !has : this.gpus.includes(one)));
    this.changed();
  }

  draw(strokeOf) {
    show(this.chips, this.hasLines && this.candidates.length > 1);
    const isFull = this.gpus.length === MOST;
    this.chips.replaceChildren(...this.candidates.map((uuid) => {
      const at = this.gpus.indexOf(uuid);
      const swatch = make("span", { class: "swatch" });
      if (at >= 0) swatch.style.borderTop = `3px solid ${strokeOf(at).stroke}`;
      const chip = make("button", { type: "button", class: "chip", "data-uuid": uuid, title: at < 0 && isFull ? `${MOST} at most: remove one first` : uuid, "aria-pressed": String(at >= 0) }, swatch, this.label(uuid));
      chip.disabled = at < 0 && isFull;
      return chip;
    }));
  }

  async offer() {
    if (this.isOffered) return;
    this.isOffered = true;
    const now = Math.floor(Date.now() / 1000);
    const [nodes, report, teams, { groups, models }] = await Promise.all([lookAtAll("nodes"), look(`reports?by=user&start=${now - OWNERS_OF_S}`), look(`reports?by=team&start=${now - OWNERS_OF_S}`), look(`load?start=${now - 60}&end=${now}&step=60`)]).catch(() => { this.isOffered = false; return [[], { items: [] }, { items: [] }, { groups: [], models: [] }]; });
    this.hosts = new Map(nodes.map(({ id, host }) => [host, id]));
    const words = [FLEET, ...groups.map((name) => `group:${name}`), ...models.map((name) => `model:${name}`), ...nodes.map(({ host }) => host), ...report.items.filter(({ of }) => of !== null).map(({ of }) => `${OWNER}${of}`), ...teams.items.filter(({ of }) => of).map(({ of }) => `${TEAM}${of}`)];
    this.list.replaceChildren(...words.map((value) => make("option", { value })));
  }

  async take(words) {
    if (words === "") return;
    await this.offer();
    const [, host, place] = words.match(/^(.*):([\d/]+)$/) ?? [];
    const id = this.hosts?.get(words);
    const ofHost = this.hosts?.get(host);
    const part = PARTS.find((name) => words.startsWith(`${name}:`));
    if (words === FLEET) this.become({ fleet: {} });
    else if (part !== undefined) this.become({ fleet: { [part]: words.slice(part.length + 1) } });
    else if (words.startsWith(OWNER)) this.become({ owner: words.slice(OWNER.length) });
    else if (words.startsWith(TEAM)) this.become({ team: words.slice(TEAM.length) });
    else if (id !== undefined) await this.become({ node: id });
    else if (ofHost !== undefined) {
      const gpu = (await lookAtAll("gpus", `&node=${encodeURIComponent(ofHost)}`)).find((one) => String(one.place) === place);
      if (gpu !== undefined) { await this.become({ gpus: [gpu.uuid] }); return; }
      this.reject();
    } else this.reject();
  }

  reject() {
    this.input.setAttribute("aria-invalid", "true");
    say(this.input.labels[0], "Show (not found)");
  }

  async become({ fleet = null, owner = null, team = null, node = null, gpus = [] }) {
    Object.assign(this, { fleet, owner, team, node, gpus, candidates: [] });
    this.input.removeAttribute("aria-invalid");
    say(this.input.labels[0], "Show");
    await this.find();
    this.changed();
  }
}
