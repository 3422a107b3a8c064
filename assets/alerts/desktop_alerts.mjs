// Critical alerts as notifications of the desktop, while a page is open in this browser and somebody here allowed them.

import { addressOf, isExplained, isSilenced, placeOf } from "./alert_words.mjs";

const KEY = "gpudeck.desktop_alerts";
const LOCK = "gpudeck-desktop-alerts";
const ICON = "/assets/icons/app-192.png";

/** Why this browser cannot show any; "": it can. */
export function whyNone() {
  if (!isSecureContext) return "Browsers show notifications only for pages that came over HTTPS or from this machine.";
  if (!("Notification" in globalThis)) return "This browser has no notifications.";
  if (Notification.permission === "denied") return "This browser does not allow notifications of this hub; its site settings can.";
  return "";
}

export function isOn() {
  try {
    return whyNone() === "" && Notification.permission === "granted" && localStorage.getItem(KEY) === "on";
  } catch { return false; /* a browser that keeps nothing */ }
}

/** Browsers ask their user only after a click. Whether they are on then. */
export async function turn(isWanted) {
  if (isWanted && whyNone() === "") await Notification.requestPermission();
  localStorage.setItem(KEY, isWanted && Notification.permission === "granted" ? "on" : "off");
  return isOn();
}

export class DesktopAlerts {
  constructor(live) {
    this.told = new Set();
    this.open = new Map(); // rule -> places of what fires
    this.speaks = false;
    live.addEventListener("alert", ({ detail }) => this.take(detail));
    // Of several tabs one speaks: the first, or when it is closed the next.
    navigator.locks?.request(LOCK, () => { this.speaks = true; return new Promise(() => {}); });
  }

  take(alert) {
    const { id, rule, severity, state } = alert;
    const places = this.open.get(rule) ?? new Map();
    if (state === "firing" && severity === "crit") places.set(id, placeOf(alert));
    else places.delete(id);
    this.open.set(rule, places);
    const isNews = places.has(id) && !this.told.has(id) && !isSilenced(alert) && !isExplained(alert);
    if (!isNews || !this.speaks || !isOn()) return;
    this.told.add(id);
    this.show(alert, [...places.values()]);
  }

  /** One for a rule: the newest replaces the one before. */
  show(alert, places) {
    const body = places.length === 1 ? places[0] : `${placeOf(alert)} and ${places.length - 1} more`;
    const shown = new Notification(alert.title, { body, tag: `gpudeck-${alert.rule}`, icon: ICON, requireInteraction: true });
    shown.onclick = () => { focus(); shown.close(); location.assign(places.length === 1 ? addressOf(alert) ?? "/alerts" : "/alerts"); };
  }
}
