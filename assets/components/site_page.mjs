// A page of the site's own: its components draw themselves.

import { settle } from "../parts/dom.mjs";

export default class SitePage {
  constructor(root) {
    settle(root);
  }
}
