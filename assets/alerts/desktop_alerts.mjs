// Critical alerts as notifications of the desktop, while a page is open in this browser and somebody here allowed them.

import { addressOf, isExplained, isSilenced, placeOf } from "./alert_words.mjs";

const KEY = "gpudeck.desktop_alerts";
const LOCK = "gpudeck-desktop-alerts";
const ICON = "/assets/icons/app-192.png";

/** Returns why this browser cannot show any; "": it can. */
export function whyNone() {
  if (!isSecureContext)
    return "Browsers show notifications only for pages that came over HTTPS or from this machine.";
  if (!("Notification" in globalThis)) return "This browser has no notifications.";
  if (Notification.permission === "denied")
    return "This browser does not allow notifications of this hub; its site settings can.";
  return "";
}

export function isOn() {
  try {
    return (
      whyNone() === "" &&
      Notification.permission === "granted" &&
      localStorage.getItem(KEY) === "on"
    );
  } catch {
    return false; /* a browser that keeps nothing */
  }
}

/**
 * Switches them on or off; returns what they are then. Browsers ask their user only after a click.
 * @param {boolean} isWanted
 */
export async function turn(isWanted) {
  if (isWanted && whyNone() === "") await Notification.requestPermission();
  localStorage.setItem(KEY, isWanted && Notification.permission === "granted" ? "on" : "off");
  return isOn();
}

export class DesktopAlerts {
  /** Ids of the alerts that were shown. @type {Set<string>} */
  shownIds = new Set();
  /** Places of the firing alerts of each rule, by the alert's id. @type {Map<string, Map<string, string>>} */
  open = new Map();
  /** Set in the one tab that shows them. */
  isChosen = false;

  /** @param {LiveLink} live */
  constructor(live) {
    live.addEventListener("alert", ({ detail }) => this.take(detail));
    // The first tab, or when it is closed the next.
    navigator.locks?.request(LOCK, () => {
      this.isChosen = true;
      return new Promise(() => {});
    });
  }

  /** @type {(alert: Hub.AlertView) => void} */
  take(alert) {
    const { id, rule, severity, state } = alert;
    /** @type {Map<string, string>} */
    const places = this.open.get(rule) ?? new Map();
    if (state === "firing" && severity === "crit") places.set(id, placeOf(alert));
    else places.delete(id);
    this.open.set(rule, places);
    const isNews =
      places.has(id) && !this.shownIds.has(id) && !isSilenced(alert) && !isExplained(alert);
    if (!isNews || !this.isChosen || !isOn()) return;
    this.shownIds.add(id);
    this.show(alert, [...places.values()]);
  }

  /**
   * Shows a notification; the newest of a rule replaces the one before.
   * @type {(alert: Hub.AlertView, places: string[]) => void}
   */
  show(alert, places) {
    const body =
      places.length === 1 ? places[0] : `${placeOf(alert)} and ${places.length - 1} more`;
    const notification = new Notification(alert.title, {
      body,
      tag: `gpudeck-${alert.rule}`,
      icon: ICON,
      requireInteraction: true,
    });
    notification.onclick = () => {
      focus();
      notification.close();
      location.assign(places.length === 1 ? (addressOf(alert) ?? "/alerts") : "/alerts");
    };
  }
}
