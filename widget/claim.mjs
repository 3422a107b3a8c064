// The widget of `claim()`: the GPUs that this kernel holds.

/** @import { WidgetModel } from "./widget.mjs" */

import { make, say, sayOrHide } from "../assets/parts/dom.mjs";
import { isDark } from "./theme.mjs";

/** @type {Record<string, string>} */
const TITLES = { held: "GPUs of this kernel", ended: "No GPUs held" };
/** @type {(at: number) => string} */
const clock = (at) =>
  new Date(1000 * at).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });

/** @type {(view: { model: WidgetModel<Hub.LeaseOfKernelPicture>, el: HTMLElement }) => () => void} */
function render({ model, el }) {
  const [title, sub] = [make("b", { class: "g-title" }), make("span", { class: "g-sub" })];
  const note = make("p", { class: "g-note", role: "status" });
  const list = make("ul", {});
  /** @type {(act: "extend" | "give_back") => () => void} */
  const ask = (act) => () => model.send({ act });
  const buttons = make(
    "span",
    { class: "g-buttons" },
    make(
      "button",
      { "type": "button", "data-act": "extend", "onclick": ask("extend") },
      "Extend by 1 h",
    ),
    make(
      "button",
      { "type": "button", "data-act": "give_back", "onclick": ask("give_back") },
      "Give back",
    ),
  );
  const root = make(
    "div",
    { "class": "gpudeck", "role": "region", "aria-label": "GPUs held by this kernel" },
    make("header", {}, title, sub),
    note,
    list,
    buttons,
  );
  el.append(root);
  const draw = () => {
    const { state, words, note: noteWords, gpus, until } = model.get("picture");
    root.dataset.theme = isDark(root) ? "dark" : "light";
    root.dataset.state = state;
    say(title, TITLES[state]);
    say(
      sub,
      state === "held" ? `${words}, until ${clock(until)}, longer while they are used` : words,
    );
    sayOrHide(note, noteWords);
    buttons.hidden = state !== "held";
    list.replaceChildren(
      ...gpus.map(({ index, name, uuid }) =>
        make("li", { title: uuid }, make("b", {}, `GPU ${index}`), ` ${name}`),
      ),
    );
  };
  model.on("change:picture", draw);
  draw();
  return () => model.off("change:picture", draw);
}

export default { render };
