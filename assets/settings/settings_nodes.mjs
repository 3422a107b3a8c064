// Settings, nodes: what is asked with an eye on what comes of it.

import { areaField, ask, tell } from "../parts/dialog.mjs";
import { make } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";
import { change } from "../parts/password_prompt.mjs";
import { toast } from "../parts/toast.mjs";

/** Approves those of a list, and says which of them it did not find. */
export async function approveList() {
  const answer = await ask({
    title: "Approve nodes by fingerprint", verb: "Approve",
    lead: "Each agent shows its fingerprint at startup. Paste those that you expect, one on a line; only these are approved.",
    fields: [areaField("fingerprints", "Fingerprints", "", { required: "", rows: "8" })],
    submit: (given) => change("POST", "nodes/approvals", { fingerprints: given.get("fingerprints").split("\n").map((line) => line.split("#")[0].trim()).filter(Boolean) }),
  });
  if (answer === null) return;
  const left = answer.items.filter(({ outcome }) => outcome === "unknown" || outcome === "revoked");
  const approved = answer.items.filter(({ outcome }) => outcome === "approved").length;
  if (left.length === 0) toast(`${plural(approved, "node")} approved.`);
  else tell("Not all were approved", ...left.map(({ fingerprint, outcome }) => make("p", {}, make("code", {}, fingerprint), outcome === "revoked" ? " is revoked." : " has not connected.")));
}
