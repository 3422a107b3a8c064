// A page of the site's own: its components draw themselves.

import { settle } from "../parts/dom.mjs";

export default class SitePage {
  /** @param {HTMLElement} root */
  constructor(root) {
    settle(root);
  }
}
