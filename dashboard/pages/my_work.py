"""The My work page: its frame; assets/jobs/my_work.mjs fills it."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .parts import Page, problem


def frame() -> Component:
    return make("div#my-work.my-work", [
        make("header.my-work-head", [
            make("div", [make("h1", "My work"), make("p#my-work-words", "", role="status")]),
            make("button#my-work-ask.button.first", "Request GPUs …", hidden=True)]),
        problem("my-work"),
        make("div#my-work-none.my-work-none", hidden=True),
        make("div#my-work-there", [
            make("ul#my-work-done.my-work-done", hidden=True, aria_label="Actions on your work"),
            make("ul#my-work-figures.my-work-figures"),
            _section("jobs", "Jobs"),
            _section("quotas", "Quotas"),
            # Leases come and go while one reads: nothing is placed below them, as it would move.
            make("div.my-work-columns", [
                _section("leases", "Leases"), _section("claims", "In the queue")])], hidden=True)],
        hidden=True, data_unsettled="")


def _section(key: str, title: str) -> Component:
    return make(f"section#my-work-{key}-section.my-work-section", [
        make(f"h2#my-work-{key}-title", title), make(f"div#my-work-{key}")],
        aria_labelledby=f"my-work-{key}-title")


PAGE = Page(
    "my-work", "My work", "jobs/my_work.mjs", frame,
    "Your jobs with what they use now and what is wrong with them, the idle ones first; what was "
    "done to them by others; your leases, your place in the queue, your quotas, and the GPU-hours "
    "of your last seven days.", (("n", "request GPUs"),), "/work", ("m", "my work"))
