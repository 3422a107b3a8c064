// Panel of MIG: a GPU's instances, the layout that gpudeck keeps, and whether it is in force.

import { splitForm, wholeForm } from "./limit_forms.mjs";
import { SettingsPanel, settingLine } from "./limits_panel.mjs";
import { make } from "../parts/dom.mjs";
import { note } from "../parts/panel.mjs";

/** @type {Record<string, string>} */
const NOW = {
  none: "MIG is on, and there is no instance: nobody can run here",
  off: "Not split: MIG is off",
};

/** @extends {SettingsPanel<Hub.MigBoardView>} */
export class MigPanel extends SettingsPanel {
  /**
   * Builds the panel; its title is hidden with it where there is nothing to split.
   * @param {Hub.GpuView} gpu
   */
  constructor(gpu) {
    super("mig");
    this.gpu = gpu;
    this.path = "mig";
    this.title = make("h3", {}, "MIG");
    this.show(false);
  }

  /** @type {(isThere: boolean) => void} */
  show(isThere) {
    this.title.hidden = this.root.hidden = !isThere;
  }

  /** @type {(items: Hub.MigBoardView[]) => void} */
  draw(items) {
    const board = items.find(({ gpu }) => gpu === this.gpu.uuid) ?? null;
    this.show(board !== null);
    if (board === null) return;
    const { now, instances, wanted } = board;
    this.put([now, instances, wanted, this.isOperator], () =>
      [
        make(
          "p",
          { class: "mig-now" },
          now === null ? "How it is split now is not known" : (NOW[now] ?? `Split into ${now}`),
          instances.length === 0 ? "" : ` (GPU ${instances.map(({ place }) => place).join(", ")})`,
        ),
        ...(wanted === null
          ? [note("gpudeck keeps no layout here.")]
          : [
              settingLine(
                wanted,
                `Kept: ${wanted.layout}`,
                "removed",
                this.acts(
                  this.button("Remove", "remove layout", "set_mig_layout", this.gpu.uuid, () =>
                    wholeForm(wanted),
                  ),
                ),
              ),
            ]),
        this.acts(
          this.button("Split by MIG", "split", "set_mig_layout", this.gpu.uuid, () =>
            splitForm(this.gpu),
          ),
        ),
      ].filter((part) => part !== null),
    );
  }
}
