// Settings: who you are here, and your password.

import { newPassword, newPasswordFields } from "../parts/dialog.mjs";
import { factLines, make } from "../parts/dom.mjs";
import { change } from "../parts/password_prompt.mjs";
import { ROLES, Section, groupWords } from "./settings_section.mjs";

export class You extends Section {
  constructor(root, page) {
    super(root, page);
    const { name, role, groups, unix_names: names } = this.person;
    const facts = [
      ["Name", name],
      ["Role", ROLES.find(([key]) => key === role)?.[1] ?? role],
      ["You see", groupWords(groups)],
      ["Your tasks", names.length === 0 ? "none: your account has no Unix name; an admin can add one" : `those of ${names.join(", ")}`],
    ];
    this.place.append(make("dl", { class: "who" }, factLines(facts)));
    this.onClick("change-password", () => this.changePassword());
  }

  ask() {}

  take() {}

  async changePassword() {
    const { name } = this.person;
    const answer = await this.asked({
      title: "Change your password", verb: "Save",
      lead: "You will be signed out everywhere and can sign in with the new password.",
      fields: newPasswordFields(name),
      submit: (given) => change("PATCH", `users/${encodeURIComponent(name)}`, { password: newPassword(given) }),
    });
    if (answer !== null) location.assign("/sign-in");
  }
}
