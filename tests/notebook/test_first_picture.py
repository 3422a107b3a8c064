"""The widget before its first picture, in its own page with a clock that the test sets."""

from playwright.sync_api import Browser

from widget.bundle import module, style

# As anywidget's model is to a view.
MODEL = """async ([code]) => {
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const heard = {};
  window.model = {
    values: { picture: {} },
    get(name) { return this.values[name]; },
    on(name, does) { heard[name] = does; },
    off() {}, send() {},
    hear: (name) => heard[name](),
  };
  widget.render({ model: window.model, el: document.body });
}"""


def test_a_kernel_that_starts_slowly_is_not_called_silent(browser: Browser) -> None:
    """Found by examiners: under load it said that data had stopped, before there was any."""
    page = browser.new_page()
    page.clock.install()
    page.add_style_tag(content=style())
    page.evaluate(MODEL, [module()])
    note = page.locator(".g-note")
    page.clock.run_for(5_000)
    assert "the first read takes a moment" in page.locator(".g-title").inner_text()
    page.clock.run_for(60_000)
    assert note.inner_text().startswith("Still no reading: the kernel is busy"), note.inner_text()
    page.evaluate("window.model.hear('comm_live_update')")
    page.evaluate("window.model.hear('change:picture')")  # as after a page's reload
    page.clock.run_for(5_000)
    assert note.inner_text() == "The kernel of this output has ended. Run the cell again."
    page.close()
