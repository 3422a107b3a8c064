"""A page under watch: whatever hostile text must not bring about in a browser is noticed."""

from typing import Any

from playwright.sync_api import BrowserContext, Page

from tests.integration.hubs import HubProcess
from tests.patience import GIVE_UP_MS

# Playwright puts it in beside the page's policy, before the first script of ours. A wrong tag is
# one that a page of ours never adds after it has been drawn.
WATCH = """
    globalThis.wrong = []; globalThis.painted = new Set();
    addEventListener("securitypolicyviolation", event => wrong.push(
        `policy: ${event.effectiveDirective} ${event.sample}`));
    for (const name of ["alert", "confirm", "prompt", "open", "calc", "reboot"])
        globalThis[name] = (...said) => wrong.push(`ran: ${name} ${said}`);
    // A figure is drawn by Plotly, which Dash brings from the hub; test_figures.py has its names.
    const suites = `${location.origin}/_dash-component-suites/`;
    const TAGS = "img, svg, iframe, object, embed, base, template, script:not([src^='/'])"
        + `:not([src^='${suites}'])`;
    const look = (element) => {
        const isOfFigure = element.closest(".js-plotly-plot, #js-plotly-tester") !== null
            || (!element.isConnected && element.matches("svg.main-svg, svg.js-plotly-tester"));
        if (element.matches(TAGS) && !isOfFigure)
            wrong.push(`added: ${element.outerHTML.slice(0, 100)}`);
        for (const {name} of element.attributes)
            if (name.startsWith("on")) wrong.push(`handler: ${element.outerHTML.slice(0, 100)}`);
    };
    const lookAtAll = (node) => {
        if (node.nodeType !== Node.ELEMENT_NODE) return;
        look(node);
        node.querySelectorAll("*").forEach(look);
    };
    globalThis.beginWatch = () => new MutationObserver(records => records.forEach(
        ({type, target, addedNodes}) => type === "attributes" ? look(target)
            : addedNodes.forEach(lookAtAll)))
        .observe(document, {subtree: true, childList: true, attributes: true});
    const {fillText} = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
        painted.add(text); return fillText.call(this, text, ...more); };
"""
# Ends when `wanted()` is true, and looks often: 500 of each would else take minutes.
UNTIL = f"""
    const until = async (wanted, what) => {{
        const end = performance.now() + {GIVE_UP_MS};
        while (!wanted()) {{
            if (performance.now() > end) throw new Error(`in vain: ${{what}}`);
            await new Promise(done => setTimeout(done, 2));
        }}
    }};
"""


class WatchedPage:
    """A page, and all that must not happen on it."""

    def __init__(self, context: BrowserContext, hub: HubProcess) -> None:
        self.hub = hub
        self.trouble: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.trouble.append(f"{error}"))
        self.page.on("dialog", self._on_dialog)
        self.page.on("console", self._on_console)

    def _on_dialog(self, dialog: Any) -> None:
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_console(self, message: Any) -> None:
        # The browser logs by itself each refused request, and a socket whose page was left early.
        own = ("Failed to load resource", "WebSocket connection to")
        if message.type in ("error", "warning") and not message.text.startswith(own):
            self.trouble.append(message.text)

    def goto(self, path: str, ready: str) -> "WatchedPage":
        self.collect()
        self.page.goto("about:blank")  # else a new fragment alone loads nothing
        self.page.goto(self.hub.url + path)
        self.page.locator(ready).first.wait_for()
        self.page.evaluate("beginWatch()")
        return self

    def run(self, code: str, argument: Any = None) -> Any:
        return self.page.evaluate(f"async given => {{ {UNTIL} {code} }}", argument)

    def collect(self) -> list[str]:
        """Collect the trouble of this page so far, before it may be left, and return all of it."""
        if self.page.url.startswith("http"):
            self.trouble += self.page.evaluate("wrong.splice(0)")
            if not self.page.title().endswith("gpudeck"):  # what a string that ran would change
                self.trouble.append(f"title: {self.page.title()}")
        return self.trouble
