// The signed-in person, and their menu in the bar.

import { csrfToken, look, send } from "./api.mjs";
import { byId, make, messageOf, say, show, targetOf } from "./dom.mjs";

/** @type {readonly string[]} */
const ROLES = ["viewer", "user", "operator", "admin"];
/** @type {Promise<Person> | null} */
let request = null;

/**
 * {kind, name, role, groups, unix_names, fresh_until}
 * @type {() => Promise<Person>}
 */
export function me() {
  request ??= look("me").catch((error) => {
    request = null;
    throw error;
  });
  return request;
}

/** @type {(person: Person | null, role: string) => boolean} */
export const isAtLeast = (person, role) => ROLES.indexOf(person?.role ?? "") >= ROLES.indexOf(role);

/** @type {(person: Person) => boolean} */
export const isAdmin = ({ role }) => role === "admin";

export function mountAccount() {
  const button = byId("account");
  const menu = byId("account-menu");
  /** @type {(isOpen: boolean) => void} */
  const toggle = (isOpen) => {
    show(menu, isOpen);
    button.setAttribute("aria-expanded", String(isOpen));
  };
  button.addEventListener("click", () => toggle(menu.hidden === true));
  document.addEventListener("click", (event) => {
    if (targetOf(event).closest("#account, #account-menu") === null) toggle(false);
  });
  menu.addEventListener("click", (event) => {
    if (targetOf(event).closest("a") !== null) toggle(false);
  });
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Escape" || menu.hidden) return;
      event.stopImmediatePropagation();
      toggle(false);
      button.focus();
    },
    true,
  );
  byId("sign-out").addEventListener("click", signOut);
  byId("sign-out-everywhere").addEventListener("click", () =>
    signOutEverywhere().catch((error) => say(byId("account-role"), messageOf(error))),
  );
  me().then(draw, () => {});
}

/** @type {(person: Person) => void} */
function draw({ name, role }) {
  say(byId("account-name"), name);
  say(byId("account-role"), role);
  byId("account").replaceChildren(
    make("span", { class: "initial" }, name.slice(0, 1).toUpperCase()),
  );
  byId("account").setAttribute("aria-label", `Account of ${name}`);
}

export async function signOut() {
  // Not below /api/v1: it answers with a page.
  const answer = await fetch("/sign-out", {
    method: "POST",
    credentials: "same-origin",
    headers: { "X-CSRFToken": csrfToken() },
  });
  // Who came by the site's provider signs out there as well.
  const isSite = answer.ok && (answer.headers.get("Content-Type") ?? "").startsWith("text/plain");
  location.assign(isSite ? await answer.text() : "/sign-in");
}

export async function signOutEverywhere() {
  await send("POST", "sign-out-everywhere");
  location.assign("/sign-in");
}
