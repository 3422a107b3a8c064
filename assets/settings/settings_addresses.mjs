// Settings: where owners are written to, beside their terminals.

import { look } from "../parts/api.mjs";
import { textField } from "../parts/dialog.mjs";
import { change } from "../parts/password_prompt.mjs";
import { Section } from "./settings_section.mjs";

export class Addresses extends Section {
  path = "addresses";

  constructor(root, page) {
    super(root, page);
    this.rows = this.table({
      label: "Addresses", key: ({ unix_name: name }) => name, empty: "No addresses yet. Owners are only notified on their terminals.",
      columns: [{ head: "Unix name", text: ({ unix_name: name }) => name }, { head: "Address", text: ({ address }) => address }],
      actions: (one) => [
        ["Edit", () => this.edit(one), { "aria-label": `Edit the address of ${one.unix_name}` }],
        ["Remove", () => this.remove(one), { "aria-label": `Remove the address of ${one.unix_name}` }],
      ],
    });
    this.onClick("add-address", () => this.edit(null));
  }

  edit(one) {
    return this.asked({
      title: one === null ? "Add an address" : `Address of ${one.unix_name}`, verb: "Save",
      fields: [
        ...(one === null ? [textField("unix_name", "Unix name", { required: "", maxlength: "128" }, "The user name their tasks run under.")] : []),
        textField("address", "Address", { required: "", maxlength: "256", value: one?.address ?? "" }, "An e-mail address."),
      ],
      submit: (given) => write(one?.unix_name ?? given.get("unix_name").trim(), given.get("address").trim()),
    });
  }

  remove({ unix_name: name }) {
    return this.sure(`Remove the address of ${name}`, "Remove", "They will only be notified on their terminals.", () => write(name, null));
  }
}

// The table is written whole, so what somebody else has added meanwhile is looked up first.
async function write(name, address) {
  const others = (await look("addresses")).items.filter(({ unix_name: own }) => own !== name);
  await change("PUT", "addresses", { items: address === null ? others : [...others, { unix_name: name, address }] });
}
