// Settings: who may sign in.

import { look } from "../parts/api.mjs";
import { copyable, newPassword, newPasswordFields, tell, textField } from "../parts/dialog.mjs";
import { make } from "../parts/dom.mjs";
import { change } from "../parts/password_prompt.mjs";
import { parts, timeCell } from "../parts/rows.mjs";
import { Section, groupWords, roleField, scopeFields, scopeOf } from "./settings_section.mjs";
import { toast } from "../parts/toast.mjs";

const path = (name) => `users/${encodeURIComponent(name)}`;

export class Users extends Section {
  path = "users";

  constructor(root, page) {
    super(root, page);
    this.rows = this.table({
      label: "Users", key: ({ name }) => name, empty: "No users yet, except those signed in by a link.",
      columns: [
        { head: "Name", draw: (cell, user) => parts(cell, ["strong", "name", user.name], user.name === this.person.name ? ["span", "pill", "you"] : null) },
        { head: "Role", text: ({ role }) => role },
        { head: "Sees", text: ({ groups }) => groupWords(groups) },
        { head: "Unix names", text: ({ unix_names: names }) => names.join(", ") || "–" },
        { head: "Signed in", draw: timeCell((user) => user.last_sign_in_at, "never") },
        { head: "Password", text: ({ has_password: has }) => (has ? "set" : "not set yet") },
      ],
      actions: (user) => this.actions(user),
    });
    this.onClick("add-user", () => this.add());
  }

  actions(user) {
    const isSelf = user.name === this.person.name;
    const label = (word) => ({ "aria-label": `${word} ${user.name}` });
    return [
      ["Edit", () => this.edit(user), label("Edit")],
      ...(isSelf ? [] : [
        ["Password", () => this.setPassword(user), label("Set the password of")],
        ["Sign out", () => this.signOut(user), label("Sign out everywhere")],
        ["Remove", () => this.remove(user), label("Remove")],
      ]),
    ];
  }

  async add() {
    const made = await this.asked({
      title: "Add a user", verb: "Add",
      fields: [
        textField("name", "Name", { required: "", pattern: "[a-z0-9][a-z0-9._@+\\-]*", maxlength: "64" }, "Sign-in name: a-z, 0-9 and . _ @ + -"),
        roleField("viewer"), ...scopeFields(),
        textField("password", "Password", { type: "password", autocomplete: "new-password", minlength: "12" }, "Leave empty to create a link with which they choose one themselves."),
      ],
      submit: (given) => change("POST", "users", {
        name: given.get("name"), role: given.get("role"), ...scopeOf(given),
        ...(given.get("password") === "" ? {} : { password: given.get("password") }),
      }),
    });
    if (made?.link) showLink(made);
    else if (made !== null) toast(`${made.name} can sign in.`);
  }

  async edit(user) {
    const { role, groups, unix_names } = user;
    const answer = await this.asked({
      title: `Edit ${user.name}`, verb: "Save",
      lead: "They are signed out; the change applies at the next sign-in.",
      fields: [roleField(role), ...scopeFields(groups, unix_names)],
      submit: (given) => change("PATCH", path(user.name), { role: given.get("role"), ...scopeOf(given) }),
    });
    if (answer !== null) toast(`${user.name} is now ${answer.role}, and sees ${groupWords(answer.groups)}.`, async () => {
      await change("PATCH", path(user.name), { role, groups, unix_names });
      await this.look();
    });
  }

  async setPassword(user) {
    const link = make("button", { type: "button", class: "as-link" }, "create a link with which they choose one themselves");
    let isLink = false;
    link.addEventListener("click", () => { isLink = true; link.closest("dialog").close(); });
    await this.asked({
      title: `Password of ${user.name}`, verb: "Save", fields: newPasswordFields(user.name),
      lead: make("p", {}, "They are signed out everywhere. Set a password here and pass it on, or ", link, "."),
      submit: (given) => change("PATCH", path(user.name), { password: newPassword(given) }),
    });
    if (isLink) await this.makeLink(user);
  }

  makeLink(user) {
    const lead = `The current password of ${user.name} becomes invalid and they are signed out. The first person to open the link chooses the new one.`;
    return this.sure(`A link for ${user.name}`, "Create link", lead, () => change("POST", `${path(user.name)}/link`))
      .then((made) => made && showLink(made));
  }

  signOut(user) {
    return this.attempt(async () => {
      const own = (await look("sessions")).items.filter((session) => session.user === user.name);
      await Promise.all(own.map(({ id }) => change("DELETE", `sessions/${id}`)));
    }, `${user.name} is signed out everywhere.`);
  }

  remove(user) {
    const lead = `${user.name} is signed out within a second and cannot come back. This cannot be undone; tokens they created stay valid.`;
    return this.sure(`Remove ${user.name}?`, "Remove", lead, () => change("DELETE", path(user.name)));
  }
}

function showLink({ name, link }) {
  tell(`A link for ${name}`,
    make("p", {}, `Send this to ${name} over a private channel. It works once and expires after ten minutes.`),
    copyable(link, "the link"));
}
