// Changes, and the password, or the sign-in at the site's provider, that some of them want once more.

import { look, send } from "./api.mjs";
import { ask, textField } from "./dialog.mjs";
import { make } from "./dom.mjs";

const STALE = "urn:gpudeck:problem:stale";

/** As `send`; where the hub wants a fresh password, it is asked for and the change is sent again. */
export async function change(method, path, body, headers) {
  try {
    return await send(method, path, body, headers);
  } catch (error) {
    if (error.type !== STALE || !(await isAsked())) throw error;
    return send(method, path, body, headers);
  }
}

/** What is changed is what was looked at: nothing is written over that somebody else has written. */
export const onlyOf = (number) => (number === null ? { "If-None-Match": "*" } : { "If-Match": `"${number}"` });

async function isAsked() {
  return (await look("me")).confirms === "provider" ? isConfirmedThere() : isTyped();
}

/** Opens a new tab, so that unsaved work in this one is kept. */
function isConfirmedThere() {
  return ask({
    title: "Sign in once more",
    lead: ["This affects other people. Sign in again in a new tab, close it, and continue here. It stays confirmed for five minutes.",
      make("p", {}, make("a", { class: "button", href: "/sign-in/oidc?fresh", target: "_blank", rel: "noopener" }, "Sign in again"))],
    verb: "Continue",
    submit: async () => {
      const { fresh_until: until } = await look("me");
      if (until === null || until * 1000 <= Date.now()) throw new Error("You have not signed in again yet.");
    },
  });
}

function isTyped() {
  return ask({
    title: "Confirm your password",
    lead: "This affects other people. Your password stays confirmed for five minutes.",
    fields: [textField("password", "Password", { type: "password", autocomplete: "current-password", required: "" })],
    verb: "Continue",
    submit: (given) => send("POST", "fresh", { password: given.get("password") }),
  });
}
