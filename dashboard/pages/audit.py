"""The Audit log page: requests, their authors and their outcomes."""

from dash.development.base_component import Component

from gpudeck.markup import choice, labelled, make

from .graphs import AUDIT, AnsweredFigure
from .parts import Page, problem

# The most usual spans; the API accepts any.
SPANS = (("", "any time"), ("3600", "the last hour"), ("86400", "the last day"),
         ("604800", "the last week"))


def frame() -> Component:
    return make("div#audit.audit-page", [
        make("header.page-head", [
            make("div", [make("h1", "Audit log"), make(
                "p", "Every action and change, including refused attempts, in a chain of hashes. "
                "Nothing is done that cannot be logged.")]),
            make("div.page-acts", [
                make("button#audit-verify.button", "Verify"),
                make("a#audit-export.button", "Export", href="/api/v1/audit/export",
                     download="gpudeck-audit.jsonl")])]),
        make("div.tools.audit-tools", [
            *(labelled(f"audit-{name}", label, make("span.audit-field", data_name=name))
              for name, label in (("actor", "Who"), ("node", "Node"))),
            choice("audit-kind", "What", [("", "anything")]),
            choice("audit-outcome", "Outcome", [("", "any")]),
            choice("audit-span", "When", SPANS),
            choice("audit-system", "By", (("", "people and rules"), ("all", "the system, too"))),
            make("output#audit-words.filter-words", "")], role="search"),
        make("div#audit-verdict.verdict", hidden=True, role="status"),
        problem("audit"),
        make("section#audit-overview.audit-overview", [AnsweredFigure(AUDIT)],
             aria_label="Entries over time, by outcome"),
        make("div#audit-place.page-place")], hidden=True)


PAGE = Page(
    "audit", "Audit log", "audit/audit_log.mjs", frame,
    "Who requested which action or change, and its outcome, including refusals. Entries cannot be "
    "changed; “Verify” checks the whole chain.", (("/", "go to the first filter"),), "/audit",
    ("r", "the audit log"), r"^/record$")
