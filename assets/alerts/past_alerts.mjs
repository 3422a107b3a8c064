// The resolved alerts, a part of the Alerts page that is read (dashboard/pages/alerts.py): the others are watched.

import ReadPage from "../parts/read_page.mjs";

const SOON_MS = 250;

export class PastAlerts extends ReadPage {
  get key() { return "alerts"; }

  listen(store) {
    super.listen(store);
    this.live.addEventListener("alert", ({ detail }) => {
      if (detail.state !== "ended") return;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.look(), SOON_MS);
    });
  }
}
