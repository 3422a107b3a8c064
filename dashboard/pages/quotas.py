"""The Quotas page: its frame; assets/quotas/quotas.mjs fills it."""

from dash.development.base_component import Component

from gpudeck.markup import make

from .graphs import QUOTA_PAST, AnsweredFigure
from .parts import Page, problem


def frame() -> Component:
    return make("div#quotas.quotas-page", [
        make("header.quotas-head", [
            make("div", [make("h1", "Quotas"), make("p#quotas-words", "", role="status")]),
            make("button#quotas-new.button", "New quota …", hidden=True)]),
        problem("quotas"),
        make("p#quotas-none.none", "Loading …", role="status"),
        make("ul#quotas-place.quotas-place"),
        # A dialog takes it while it is open.
        make("div#quota-figure", AnsweredFigure(QUOTA_PAST), hidden=True),
        make("details#quotas-means.quotas-means", [
            make("summary", "How nodes enforce quotas"),
            make("ul#quotas-means-list")], hidden=True)], hidden=True, data_unsettled="")


PAGE = Page(
    "quotas", "Quotas", "quotas/quotas.mjs", frame,
    "Limits per owner, current usage, and the nodes on which each quota is in force. Mode "
    "“observe” only shows who is over.", (), "/quotas", ("q", "the quotas"))
