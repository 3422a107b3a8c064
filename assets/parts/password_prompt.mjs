// Changes, and the password that some of them want once more.

import { send } from "./api.mjs";
import { ask, textField } from "./dialog.mjs";

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

function isAsked() {
  return ask({
    title: "Confirm your password",
    lead: "This affects other people. Your password stays confirmed for five minutes.",
    fields: [textField("password", "Password", { type: "password", autocomplete: "current-password", required: "" })],
    verb: "Continue",
    submit: (given) => send("POST", "fresh", { password: given.get("password") }),
  });
}
