"""The table of actions: what each may do is written down here once more, so that no flag of a row
changes unseen."""

import re
from typing import get_args

import msgspec
import pytest

from agent.actions import guard
from agent.actions.kinds.table import SETTING_KINDS, TASK_KINDS
from agent.cli import actions as commands
from gpudeck.contract.action_table import (
    ACTIONS,
    ENDS_WORK,
    HARMFUL,
    HITS,
    IN_ROWS,
    KILLS,
    ON_RUNG,
    OPTIONAL,
    ROWS,
    SETTING_ACTIONS,
    TASK_ACTIONS,
    TERMINAL_ACTIONS,
    Action,
    ActionParameter,
    ActionRow,
    rows_json,
)
from gpudeck.contract.actions import ActionParams
from gpudeck.contract.limits import _ACTION_OF, Setting


def test_what_each_action_may_do() -> None:
    assert KILLS == ("end", "terminate_client", "stop_mps", "restart_mps", "slurm_cancel",
                     "slurm_requeue", "kubernetes_delete", "kubernetes_evict")
    assert ENDS_WORK == ("stop_mps", "restart_mps", "slurm_cancel", "slurm_requeue",
                         "kubernetes_delete", "kubernetes_evict")
    assert HARMFUL == ("limit", "pause", "suspend", "end", "terminate_client", "stop_mps",
                       "restart_mps", "slurm_cancel", "slurm_requeue", "slurm_suspend",
                       "kubernetes_delete", "kubernetes_evict")
    assert guard.SIGNALS == ("pause", "resume", "suspend", "restore", "end")
    assert OPTIONAL == ("suspend", "restore")
    assert guard.LEAVE_MPS == ("end", "terminate_client")
    assert set(HITS) == {*guard.SIGNALS, *KILLS, "limit"}
    assert [action for action in ACTIONS if ROWS[action].for_rules] == [
        "notify", "limit", "pause", "resume", "suspend", "restore", "end", "release_limit",
        "cordon"]
    assert [action for action in ACTIONS if ROWS[action].only_tells] == ["notify"]
    assert IN_ROWS == ("pause", "resume", "end")
    assert ON_RUNG == {"tell": "notify", "limit": "limit", "pause": "pause", "suspend": "suspend",
                       "end": "end"}
    assert {ROWS[action].is_setting for action in SETTING_ACTIONS} == {True}
    assert not any(ROWS[action].is_setting for action in TASK_ACTIONS)


@pytest.mark.parametrize("left_out", ["signals", "is_kill", "is_harmful"])
def test_a_row_says_what_guards_it(left_out: str) -> None:
    flags = {"signals": False, "is_kill": False, "is_harmful": False}
    words = {"id": "notify", "label": "", "doing": "", "ended": ""}
    row = ActionRow(**words | flags)  # type: ignore[arg-type]
    assert (row.for_rules, row.only_tells, row.rung, row.in_rows) == (False, False, None, False)
    del flags[left_out]
    with pytest.raises(TypeError, match=left_out):
        ActionRow(**words | flags)  # type: ignore[arg-type]


def test_every_action_has_its_row_and_what_a_node_does() -> None:
    assert tuple(ROWS) == ACTIONS == get_args(Action)
    assert tuple(TASK_KINDS) == TASK_ACTIONS
    settings = get_args(Setting)
    assert set(SETTING_KINDS) == set(settings)
    assert set(_ACTION_OF) == set(settings)
    assert set(_ACTION_OF.values()) == set(SETTING_ACTIONS)
    for action in TERMINAL_ACTIONS:
        assert callable(getattr(commands, action))


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.id)
def test_a_row_has_words_for_everybody(row: ActionRow) -> None:
    assert row.label
    assert row.doing
    assert row.ended
    assert row.done or row.proof == "read_back"
    assert (row.summary != "") == (row.does != "")
    # Of settings a drain alone asks owners for something.
    assert (row.mail_subject != "") == (row.mail_text != "") == (
        row.id in (*TASK_ACTIONS, "drain"))
    assert "Gpu" not in row.mail_text
    keys = [other.key for other in ROWS.values() if other.key]
    assert len(keys) == len(set(keys))


def test_parameters_are_those_of_the_wire() -> None:
    parameters = {parameter.name: parameter for row in ROWS.values() for parameter in row.params}
    assert {*parameters, "setting"} == set(ActionParams.__struct_fields__)
    assert set(get_args(ActionParameter.__annotations__["name"])) == set(parameters)
    for parameter in parameters.values():
        value = getattr(ActionParams(), parameter.name)
        # What is left out is the default too, where a node of before does not know it.
        assert parameter.default == (0.0 if value is msgspec.UNSET
                                     else value if isinstance(value, float) else None)
    for signal in parameters["checkpoint_signal"].choices:
        msgspec.convert({"checkpoint_signal": signal}, ActionParams)


def test_the_rows_stand_in_a_page_as_they_are() -> None:
    assert "<" not in rows_json()
    rows = msgspec.json.decode(rows_json(), type=list[ActionRow])
    assert rows == [*ROWS.values()]
    assert not re.search(r"\{%|%\}", rows_json())  # what Dash puts into a page stands in these
