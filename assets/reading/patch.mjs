// Elements as the hub wrote them (dashboard/pages/element_tree.py): [tag, traits, children], and a text is a string.
// What is there stays and only changes, so that focus, selection, scroll and an open `details` survive an answer.

import { allWithin, show } from "../parts/dom.mjs";
import { keepFocus } from "../parts/focus.mjs";

const NEVER = new Set([
  "script",
  "style",
  "iframe",
  "object",
  "embed",
  "base",
  "meta",
  "link",
  "svg",
  "math",
]);
// gpudeck/markup.py has the same: a browser would run `javascript:`.
const SAFE_LINK = /^(?:\/(?![/\\])|#|\?|https?:\/\/|mailto:)/i;
/** @type {[string, Attributes, Written[]]} */
const NOTHING = ["", {}, []];
const HELD = "held";
/** @type {WeakMap<Node, WrittenElement>} */
const lastNodes = new WeakMap(); // what the hub wrote for an element; what others set on it is theirs

/**
 * Nodes for a place; true or false shows or hides what is in it, null empties it. One element with
 * the place's own id is the place.
 * @type {(place: HTMLElement, nodes: WrittenNodes) => void}
 */
export function put(place, nodes) {
  keepFocus(place, () => putWithin(place, nodes));
}

/** @type {(place: HTMLElement, nodes: WrittenNodes) => void} */
function putWithin(place, nodes) {
  if (typeof nodes === "boolean") {
    show(place, nodes);
    return;
  }
  const [only] = nodes ?? [];
  if (nodes?.length === 1 && !isText(only) && only[1].id === place.id && place.id !== "") {
    update(place, only);
    show(place, only[1].hidden === undefined);
    return;
  }
  fill(place, nodes ?? []);
  show(place, nodes !== null);
}

/** @type {(place: Element, nodes: Written[]) => void} */
export function fill(place, nodes) {
  /** @type {Map<string, Element>} */
  const byKey = new Map();
  for (const child of allWithin(place, ":scope > *")) {
    const name = nameOf(child.localName, child.id, child.dataset.key);
    if (name !== null) byKey.set(name, child);
  }
  let at = place.firstChild;
  for (const node of inOrder(place, nodes, byKey)) {
    const existing = find(at, node, byKey);
    if (existing === null) {
      place.insertBefore(build(node), at);
      continue;
    }
    bring(existing, at);
    update(existing, node);
    at = existing.nextSibling;
  }
  while (at !== null) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/**
 * Orders rows. In a steady place (`data-steady`) present rows stay where they are, and new ones come last.
 * @type {(place: Element, nodes: Written[], byKey: Map<string, Element>) => Written[]}
 */
function inOrder(place, nodes, byKey) {
  if (!(place instanceof HTMLElement) || place.dataset.steady === undefined) return nodes;
  const isHeld = place.matches(":hover, :focus-within");
  place.dataset.steady = isHeld ? HELD : "";
  if (!isHeld) return nodes;
  const places = new Map([...byKey.keys()].map((name, at) => [name, at]));
  /** @type {(node: Written) => number} */
  const placeOf = (node) => {
    const name = isText(node) ? null : nameOf(node[0], node[1].id, node[1]["data-key"]);
    return places.get(name ?? "") ?? places.size;
  };
  return [...nodes].sort((one, other) => placeOf(one) - placeOf(other));
}

/**
 * Once nobody's hand is in it, its rows are put in order.
 * @type {(element: HTMLElement) => boolean}
 */
const isHeldUp = (element) =>
  element.dataset.steady === HELD || element.querySelector(`[data-steady=${HELD}]`) !== null;

/** @type {(node: Written) => node is string} */
const isText = (node) => typeof node === "string";

/** @type {(tag: string, id?: string, key?: string) => string | null} */
const nameOf = (tag, id = "", key = "") => ((id || key) === "" ? null : `${tag} ${id || key}`);

/**
 * The element or text that is to show it: the one with its id or key, otherwise the next one like
 * it.
 * @type {(at: ChildNode | null, node: Written, byKey: Map<string, Element>) => ChildNode | null}
 */
function find(at, node, byKey) {
  const name = isText(node) ? null : nameOf(node[0], node[1].id, node[1]["data-key"]);
  if (name !== null) {
    const existing = byKey.get(name) ?? null;
    byKey.delete(name);
    return existing;
  }
  /** @type {(one: ChildNode) => boolean} */
  const isLike = (one) => {
    if (isText(node)) return one instanceof Text;
    return (
      one instanceof HTMLElement &&
      one.localName === node[0] &&
      nameOf(one.localName, one.id, one.dataset.key) === null
    );
  };
  let one = at;
  while (one !== null && !isLike(one)) one = one.nextSibling;
  return one;
}

/**
 * Moves an element to its place; one that holds the focus stays, and the others move.
 * @type {(existing: ChildNode, at: ChildNode | null) => void}
 */
function bring(existing, at) {
  const place = existing.parentElement;
  if (place === null) return;
  if (!existing.contains(document.activeElement)) {
    if (existing !== at) place.insertBefore(existing, at);
    return;
  }
  let one = at;
  while (one !== null && one !== existing) {
    const next = one.nextSibling;
    place.append(one);
    one = next;
  }
}

/** @type {(node: Written) => Node} */
function build(node) {
  if (isText(node) || NEVER.has(node[0])) return document.createTextNode(isText(node) ? node : "");
  const element = document.createElement(node[0]);
  update(element, node);
  return element;
}

/** @type {(element: ChildNode, node: Written) => void} */
function update(element, node) {
  if (isText(node)) {
    if (element.nodeValue !== node) element.nodeValue = node;
    return;
  }
  if (!(element instanceof HTMLElement)) return;
  const [, before, had] = lastNodes.get(element) ?? NOTHING;
  const [, traits, children] = node;
  for (const name of Object.keys({ ...before, ...traits }))
    if (before[name] !== traits[name]) write(element, name, traits[name] ?? null);
  if (!lastNodes.has(element) || !isSame(had, children) || isHeldUp(element))
    fill(element, children);
  lastNodes.set(element, node);
}

/** @type {(element: HTMLElement, name: string, value: string | null) => void} */
function write(element, name, value) {
  if (/^on/i.test(name) || name === "srcdoc") return;
  const isRefused = (name === "href" || name === "src") && value !== null && !SAFE_LINK.test(value);
  if (value === null || isRefused) element.removeAttribute(name);
  else element.setAttribute(name, value);
  // Once somebody has chosen or typed, the attribute alone changes nothing; and what is being typed stays.
  if (name === "checked" || name === "selected") Object.assign(element, { [name]: value !== null });
  else if (name === "value" && "defaultValue" in element && element !== document.activeElement)
    Object.assign(element, { value: value ?? "" });
}

/** @type {(one: any, other: any) => boolean} */
const isSame = (one, other) =>
  one === other ||
  (typeof one === "object" &&
    typeof other === "object" &&
    Object.keys(one).length === Object.keys(other).length &&
    Object.keys(one).every((key) => isSame(one[key], other[key])));
