// Settings: who you are here, and your password.

import { isOn, turn, whyNone } from "../alerts/desktop_alerts.mjs";
import { newPassword, newPasswordFields } from "../parts/dialog.mjs";
import { factLines, make, say } from "../parts/dom.mjs";
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
    this.putDesktop();
    this.onClick("change-password", () => this.changePassword());
  }

  /** Of this browser, not of the account: it may be somebody's phone. */
  putDesktop() {
    const box = make("input", { type: "checkbox", id: "desktop-alerts", "aria-describedby": "desktop-alerts-words" });
    const words = make("small", { id: "desktop-alerts-words", role: "status" });
    const draw = () => {
      const why = whyNone();
      Object.assign(box, { checked: isOn(), disabled: why !== "" });
      say(words, why || "In this browser, while a page of gpudeck is open in it.");
    };
    box.addEventListener("change", () => turn(box.checked).then(draw));
    this.place.append(make("p", { class: "desktop-alerts" }, make("label", {}, box, "Show critical alerts as desktop notifications"), words));
    draw();
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
