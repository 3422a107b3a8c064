"""Action views, declared once: clients may miss a field, the hub never leaves one out."""

import random

import msgspec

from dashboard.openapi.document import document
from gpudeck.contract import action_views
from gpudeck.contract.action_views import CommandView, PreviewView, verification_view
from gpudeck.contract.actions import ActionVerification


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


def test_the_checkpoint_that_was_waited_for_is_part_of_what_was_observed() -> None:
    at = random.uniform(1e9, 2e9)
    written = verification_view(ActionVerification(exited=True, checkpoint_at=at))
    assert written is not None
    assert (written.exited, written.checkpoint_at) == (True, at)
    of_an_older_node = verification_view(ActionVerification(exited=False))
    assert of_an_older_node is not None
    assert (of_an_older_node.exited, of_an_older_node.checkpoint_at) == (False, None)
    assert verification_view(None) is None
