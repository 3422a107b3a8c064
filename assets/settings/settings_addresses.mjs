// Settings: where owners are written to, beside their terminals.

import { look } from "../parts/api.mjs";
import { ask, textField } from "../parts/dialog.mjs";
import { change } from "../parts/password_prompt.mjs";
import { Rows } from "../parts/rows.mjs";
import { Section } from "./settings_section.mjs";

export class Addresses extends Section {
  constructor(root, person) {
    super(root, person);
    this.items = [];
    this.rows = new Rows({
      label: "Addresses", key: ({ unix_name: name }) => name, empty: "No address yet. Owners are then written to on their terminals alone.",
      columns: [{ head: "Unix name", text: ({ unix_name: name }) => name }, { head: "Address", text: ({ address }) => address }],
      actions: (one) => [
        ["Edit", () => this.edit(one), { "aria-label": `Edit the address of ${one.unix_name}` }],
        ["Remove", () => this.remove(one), { "aria-label": `Remove the address of ${one.unix_name}` }],
      ],
    });
    this.place.append(this.rows.root);
    this.onClick("add-address", () => this.edit(null));
  }

  async fill() {
    this.items = (await look("addresses")).items;
    this.rows.update(this.items);
  }

  async edit(one) {
    await this.asked({
      title: one === null ? "Add an address" : `Address of ${one.unix_name}`, verb: "Save",
      fields: [
        ...(one === null ? [textField("unix_name", "Unix name", { required: "", maxlength: "128" }, "As the owner of their tasks is called.")] : []),
        textField("address", "Address", { required: "", maxlength: "256", value: one?.address ?? "" }, "An e-mail address."),
      ],
      submit: (given) => this.save(one?.unix_name ?? given.get("unix_name").trim(), given.get("address").trim()),
    });
  }

  // The table is written whole, so what somebody else has added meanwhile is looked up first.
  async save(name, address) {
    const { items } = await look("addresses");
    await change("PUT", "addresses", { items: [...items.filter(({ unix_name: own }) => own !== name), { unix_name: name, address }] });
  }

  async remove({ unix_name: name }) {
    await ask({
      title: `Remove the address of ${name}`, verb: "Remove", tone: "bad", lead: "They are then written to on their terminals alone.",
      submit: async () => {
        const { items } = await look("addresses");
        await change("PUT", "addresses", { items: items.filter(({ unix_name: own }) => own !== name) });
      },
    });
    await this.look();
  }
}
