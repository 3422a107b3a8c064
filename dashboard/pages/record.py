"""The Audit log page: requests, their authors and their outcomes."""

from dash.development.base_component import Component

from .parts import Page, choice, labelled, make, problem

# What people look for first; the API takes any kind.
SPANS = (("", "any time"), ("3600", "the last hour"), ("86400", "the last day"),
         ("604800", "the last week"))


def frame() -> Component:
    return make("div#record.record-page", [
        make("header.record-head", [
            make("div", [make("h1", "Audit log"), make(
                "p", "Every action and change, including refused attempts, in a chain of hashes. "
                "Nothing is done that cannot be logged.")]),
            make("div.record-acts", [
                make("button#record-verify.button", "Verify"),
                make("a#record-export.button", "Export", href="/api/v1/audit/export",
                     download="gpudeck-audit.jsonl")])]),
        make("div.tools.record-tools", [
            *(labelled(f"record-{name}", label, make("span.record-field", data_name=name))
              for name, label in (("actor", "Who"), ("node", "Node"))),
            choice("record-kind", "What", [("", "anything")]),
            choice("record-outcome", "Outcome", [("", "any")]),
            choice("record-span", "When", SPANS),
            choice("record-system", "By", (("", "people and rules"), ("all", "the system, too"))),
            make("output#record-words.filter-words", "")], role="search"),
        make("div#record-verdict.verdict", hidden=True, role="status"),
        problem("record"),
        make("div#record-place.record-place")], hidden=True)


PAGE = Page(
    "record", "Audit log", "audit/audit_log.mjs", frame,
    "Who requested which action or change, and its outcome, including refusals. Entries cannot be "
    "changed; “Verify” checks the whole chain.", (("/", "go to the first filter"),), "/record",
    ("r", "the audit log"))
