"""Action views, declared once: clients may miss a field, the hub never leaves one out."""

import msgspec

from dashboard.openapi.document import document
from gpudeck import action_views
from gpudeck.action_views import CommandView, PreviewView


def test_the_hub_promises_every_field_of_its_answers_about_actions() -> None:
    schemas = document()["components"]["schemas"]
    for name in ("PreviewView", "PreviewItemView", "ProcessView", "GpuUseView", "BystanderView",
                 "KeepView", "RefusalView", "ActionRequirementsView", "RequesterView",
                 "VerificationView", "CommandView", "CommandTransitionView", "ActionPlanView",
                 "OrderResultView"):
        struct = getattr(action_views, name)
        assert schemas[name]["required"] == list(struct.__struct_fields__), name
    for name in ("PreviewView", "ActionPlanView"):
        assert schemas[name]["properties"]["params"] == {
            "$ref": "#/components/schemas/ActionParams"}


def test_an_answer_of_an_older_hub_can_be_read() -> None:
    command = msgspec.convert({"id": "c", "action": "end", "node": "n", "host": "h",
                               "state": "sent", "sentence": ""}, CommandView)
    assert (command.history, command.by.name) == ((), "")
    preview = msgspec.convert({"id": "p", "action": "end", "params": {}, "expires_at": 1.0,
                               "items": []}, PreviewView)
    assert not preview.refused
    assert not preview.needs.maintenance
