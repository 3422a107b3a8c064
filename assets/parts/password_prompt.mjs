// Changes, and the password, or the sign-in at the site's provider, that some of them want once more.

import { ApiError, look, send } from "./api.mjs";
import { ask, textField } from "./dialog.mjs";
import { make } from "./dom.mjs";

const STALE = "urn:gpudeck:problem:stale";

/**
 * Sends a change as `send` does; where the hub wants a fresh password, asks for it and sends again.
 * @type {<M extends Method, P extends string>(method: M, path: P, body?: unknown,
 *   headers?: HeadersOf) => Promise<Hub.Answer<`${M} ${P}`>>}
 */
export async function change(method, path, body, headers) {
  // The type of an answer that depends on both is too deep to be compared with itself.
  const sendIt = () => /** @type {Promise<any>} */ (send(method, path, body, headers));
  try {
    return await sendIt();
  } catch (error) {
    if (!(error instanceof ApiError) || error.type !== STALE || !(await isAsked())) throw error;
    return sendIt();
  }
}

/**
 * Returns the headers by which a change applies only to the version that was shown.
 * @param {number | null} number
 * @returns {HeadersOf}
 */
export const onlyOf = (number) => {
  if (number === null) return { "If-None-Match": "*" };
  return { "If-Match": `"${number}"` };
};

async function isAsked() {
  return (await look("me")).confirms === "provider" ? isConfirmedThere() : isTyped();
}

/** Opens a new tab, so that unsaved work in this one is kept. */
function isConfirmedThere() {
  return ask({
    title: "Sign in once more",
    lead: [
      "This affects other people. Sign in again in a new tab, close it, and continue here. It stays confirmed for five minutes.",
      make(
        "p",
        {},
        make(
          "a",
          { class: "button", href: "/sign-in/oidc?fresh", target: "_blank", rel: "noopener" },
          "Sign in again",
        ),
      ),
    ],
    verb: "Continue",
    submit: async () => {
      const { fresh_until: until } = await look("me");
      if (until === null || until * 1000 <= Date.now())
        throw new Error("You have not signed in again yet.");
    },
  });
}

function isTyped() {
  return ask({
    title: "Confirm your password",
    lead: "This affects other people. Your password stays confirmed for five minutes.",
    fields: [
      textField("password", "Password", {
        type: "password",
        autocomplete: "current-password",
        required: "",
      }),
    ],
    verb: "Continue",
    submit: (given) => send("POST", "fresh", { password: given.get("password") }),
  });
}
