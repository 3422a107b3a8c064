// Of what the History page tells: some GPUs, those of a Node, or an owner; and the choice of it.

import { look, lookAtAll, several } from "../parts/api.mjs";
import { make, say, show } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";

const MOST = 8;
const OWNER = "user:";
const OWNERS_OF_S = 30 * 86_400;

export class Subject {
  constructor(query, place, chips, changed) {
    Object.assign(this, { chips, changed, known: new Map(), owner: null, node: null, nodeFacts: null, candidates: [], gpus: query.getAll("gpu").slice(0, 64) });
    if (query.get("owner")) this.owner = query.get("owner").replace(/^user:/, "");
    else this.node = query.get("node");
    this.input = make("input", { id: "past-what", type: "search", list: "past-whats", autocomplete: "off", spellcheck: "false", autocapitalize: "none", maxlength: "256", placeholder: "node, or user:name", title: "A node (host name), a GPU (host:number) or an owner (user:name)" });
    this.list = make("datalist", { id: "past-whats" });
    place.append(this.input, this.list);
    this.input.addEventListener("focus", () => { this.input.select(); this.offer(); });
    this.input.addEventListener("change", () => this.take(this.input.value.trim()));
    chips.addEventListener("click", ({ target }) => { const chip = target.closest("[data-uuid]"); if (chip !== null) this.toggle(chip.dataset.uuid); });
  }

  get kind() {
    return this.owner !== null ? "owner" : this.node !== null ? "node" : "gpus";
  }

  get isEmpty() {
    return this.owner === null && this.gpus.length === 0;
  }

  emptyWords() {
    return this.node === null ? "No node has reported a GPU yet." : "This node has reported no GPU.";
  }

  async find() {
    if (this.owner === null && this.node === null && this.gpus.length === 0) await this.findFirst();
    if (this.node !== null) await this.findNode();
    else if (this.owner === null) await this.findGpus();
    this.input.value = this.owner !== null ? `${OWNER}${this.owner}` : this.node !== null ? this.nodeFacts.host : this.gpus.length === 1 ? this.label(this.gpus[0]) : "";
  }

  /** Who comes from the bar has chosen nothing: the first node shows what there is. */
  async findFirst() {
    const nodes = await lookAtAll("nodes");
    const [first] = nodes.filter(({ gpus }) => gpus > 0).sort((one, other) => one.host.localeCompare(other.host, "en", { numeric: true }));
    if (first !== undefined) this.node = first.id;
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
    if (this.owner !== null) return this.owner;
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
    if (this.owner !== null) return "usage on all nodes";
    if (this.candidates.length > MOST) return `${MOST} of ${this.candidates.length} GPUs at most`;
    return this.candidates.length === 1 ? this.known.get(this.gpus[0])?.name ?? "" : "";
  }

  get liveAddress() {
    if (this.owner !== null) return `/tasks?filter=${encodeURIComponent(`user:${this.owner}`)}`;
    if (this.node !== null) return `/node/${encodeURIComponent(this.node)}`;
    if (this.gpus.length === 0) return null;
    return this.gpus.length === 1 ? `/gpu/${encodeURIComponent(this.gpus[0])}` : `/compare?${new URLSearchParams(this.gpus.map((uuid) => ["gpu", uuid]))}`;
  }

  write(query) {
    if (this.owner !== null) query.set("owner", `${OWNER}${this.owner}`);
    if (this.node !== null) query.set("node", this.node);
    const isAll = this.gpus.join() === this.candidates.slice(0, MOST).join();
    if (this.owner === null && (this.node === null || !isAll)) this.gpus.forEach((uuid) => query.append("gpu", uuid));
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
    show(this.chips, this.owner === null && this.candidates.length > 1);
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
    const start = (Date.now() / 1000 - OWNERS_OF_S).toFixed(0);
    const [nodes, report] = await Promise.all([lookAtAll("nodes"), look(`reports?by=user&start=${start}`)]).catch(() => { this.isOffered = false; return [[], { items: [] }]; });
    this.hosts = new Map(nodes.map(({ id, host }) => [host, id]));
    this.list.replaceChildren(...nodes.map(({ host }) => make("option", { value: host })), ...report.items.filter(({ of }) => of !== null).map(({ of }) => make("option", { value: `${OWNER}${of}` })));
  }

  async take(words) {
    if (words === "") return;
    await this.offer();
    const [, host, place] = words.match(/^(.*):([\d/]+)$/) ?? [];
    const id = this.hosts?.get(words);
    const ofHost = this.hosts?.get(host);
    if (words.startsWith(OWNER)) this.become({ owner: words.slice(OWNER.length) });
    else if (id !== undefined) await this.become({ node: id });
    else if (ofHost !== undefined) {
      const gpu = (await lookAtAll("gpus", `&node=${encodeURIComponent(ofHost)}`)).find((one) => String(one.place) === place);
      if (gpu !== undefined) { await this.become({ gpus: [gpu.uuid] }); return; }
      this.reject();
    } else this.reject();
  }

  reject() {
    this.input.setAttribute("aria-invalid", "true");
    say(this.input.labels[0], "Node or user (not found)");
  }

  async become({ owner = null, node = null, gpus = [] }) {
    Object.assign(this, { owner, node, gpus, candidates: [] });
    this.input.removeAttribute("aria-invalid");
    say(this.input.labels[0], "Node or user");
    await this.find();
    this.changed();
  }
}
