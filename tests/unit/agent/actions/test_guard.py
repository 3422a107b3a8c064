"""The guard: one table of cases of who is protected, and who is not."""

from dataclasses import replace
from typing import Any

import pytest

from agent.actions.ceiling import Ceiling
from agent.actions.guard import (
    GuardedProcess,
    GuardInput,
    ProtectedExecutables,
    made_up_refusal,
    refusals,
)
from agent.tasks.jobs import ProcessTableRow
from agent.tasks.processes import ProcessFacts
from gpudeck.contract.action_table import SHOWN_ACTIONS, ShownAction
from gpudeck.contract.actions import ProcessIdentity
from gpudeck.contract.message_limits import PID_MAX

NOBODY = ProtectedExecutables(frozenset(), frozenset())


def a_subject(**changed: Any) -> GuardedProcess:
    spec: dict[str, Any] = {
        "pid": 500, "uid": 1_000, "executable": "8:1", "path": "/usr/bin/python3.11", "oom": 0,
        "kernel": False, "cgroup": "0::/user.slice/session-1.scope"} | changed
    row = ProcessTableRow(spec["pid"], spec.get("parent", 400), 400, 7, "S", spec["kernel"])
    identity = ProcessIdentity(spec["pid"], 7, spec["uid"], spec["executable"], None, None)
    facts = ProcessFacts(row, identity, spec["cgroup"], ("python",), spec["path"], spec["oom"],
                         0, None)
    return GuardedProcess(facts, spec.get("user", "alice"), spec.get("kind"),
                          spec.get("may_signal", True), spec.get("ours", False), is_frozen=False,
                          is_suspended=spec.get("suspended", False))


def a_case(subject: GuardedProcess | None = None, **changed: Any) -> GuardInput:
    subject = subject or a_subject()
    spec: dict[str, Any] = {
        "action": "end", "ceiling": Ceiling(), "subjects": (subject,), "age_s": 100.0,
        "protected": NOBODY, "protected_by_ceiling": frozenset(), "holds": (), "asker": None,
        "sees_host_pids": True, "kills_last_hour": 0, "pauses_last_hour": 0,
        "manager": None, "mps": ""}
    return GuardInput(**spec | changed)


def codes(case: GuardInput) -> list[str]:
    found_refusals = refusals(case)
    assert all(len(refusal.sentence) > 20 for refusal in found_refusals)
    return [refusal.code for refusal in found_refusals]


def test_an_ordinary_task_may_be_ended() -> None:
    assert codes(a_case()) == []


PROTECTED = ProtectedExecutables(frozenset(("8:70",)), frozenset(("8:80",)))


@pytest.mark.parametrize("subject", [
    {"pid": 1}, {"pid": 2}, {"kernel": True}, {"parent": 2}, {"ours": True}, {"oom": -1_000},
    {"executable": "8:70", "uid": 33}, {"executable": "8:80"}, {"executable": "8:90"},
    {"uid": 0, "path": "/snap/x/sshd"}, {"uid": 0}, {"kind": "mps_server"}, {"user": "root-like"},
    {"cgroup": "0::/system.slice/precious.service/x"},
])
def test_protected(subject: dict[str, Any]) -> None:
    ceiling = Ceiling(protected_users=("root-like",), protected_units=("precious.service",))
    case = a_case(a_subject(**subject), protected=PROTECTED, ceiling=ceiling,
                  protected_by_ceiling=frozenset(("8:90",)))
    assert codes(case) == ["protected"]
    for action in ("pause", "resume"):
        assert codes(replace(case, action=action)) == ["protected"]
    # To be told something harms nobody.
    assert codes(replace(case, action="notify")) == []


@pytest.mark.parametrize("subject", [
    {"path": "/home/eve/sshd"},  # a name that a tenant chose
    {"executable": "8:70"},  # the true sshd, run by a tenant
    {"cgroup": "0::/user.slice/not-precious.service"},
    {"oom": -999},
])
def test_nobody_protects_themselves(subject: dict[str, Any]) -> None:
    ceiling = Ceiling(protected_units=("precious.service",))
    assert codes(a_case(a_subject(**subject), protected=PROTECTED, ceiling=ceiling)) == []


@pytest.mark.parametrize(("changed", "code"), [
    ({"ceiling": Ceiling(trouble="the ceiling is broken; nothing is permitted")}, "type"),
    ({"ceiling": Ceiling(actions=("notify",))}, "type"),
    ({"ceiling": Ceiling(terminal_may_act=False), "asker": "terminal"}, "type"),
    ({"kills_last_hour": 3}, "budget"),
    ({"action": "pause", "pauses_last_hour": 12}, "budget"),
    ({"asker": "rule"}, "rules"),
    ({"holds": ("the file /etc/gpudeck/hold",)}, "hold"),
    ({"sees_host_pids": False}, "pidns"),
    ({"manager": "slurm job 12"}, "managed"),
    ({"mps": "the MPS control program is not installed", "subjects": (
        a_subject(kind="mps_client"),)}, "mps"),
    ({"action": "pause", "subjects": (a_subject(kind="mps_client"),)}, "mps"),
    ({"action": "pause", "asker": "rule", "ceiling": Ceiling(rules_may_act=True),
      "subjects": (a_subject(), a_subject(pid=501))}, "multi_process"),
    ({"subjects": (a_subject(may_signal=False),)}, "permission"),
    ({"age_s": 4.99}, "young"),
])
def test_each_refusal(changed: dict[str, Any], code: str) -> None:
    assert codes(a_case(**changed)) == [code]


@pytest.mark.parametrize(("more_subjects", "code"), [
    (({"pid": 501, "parent": 500}, {"pid": 502, "parent": 501}), None),
    (({"pid": 501, "parent": 500}, {"pid": 502, "parent": 1}), "multi_process"),
    (({"pid": 501, "parent": 500}, {"pid": 502, "parent": 501, "uid": 1_001}), "multi_process"),
    (({"pid": 501, "parent": 502}, {"pid": 502, "parent": 501}), "multi_process"),
], ids=["one tree", "an orphan", "another user", "a circle"])
def test_a_rule_pauses_what_is_proven_to_be_one_tree(more_subjects: tuple[dict[str, Any], ...],
                                                     code: str | None) -> None:
    case = a_case(action="pause", asker="rule", ceiling=Ceiling(rules_may_act=True),
                  subjects=(a_subject(), *(a_subject(**fields) for fields in more_subjects)))
    assert codes(case) == ([] if code is None else [code])
    assert codes(replace(case, asker="person")) == [], "the control: a person sees whom it hits"
    permissive = Ceiling(rules_may_act=True, actions=SHOWN_ACTIONS)
    assert codes(replace(case, action="suspend", ceiling=permissive)) == codes(case)


def test_a_rule_that_may_not_act_may_tell() -> None:
    case = a_case(a_subject(), asker="rule")
    assert codes(case) == codes(replace(case, action="pause")) == ["rules"]
    assert codes(replace(case, action="notify")) == []


@pytest.mark.parametrize("action", SHOWN_ACTIONS)
@pytest.mark.parametrize("may_act", [False, True])
def test_a_rule_does_nothing_but_tell_limit_pause_end_and_cordon(action: ShownAction, may_act: bool
                                                               ) -> None:
    """Actions of people alone, now and later: taking clients out of MPS, setting limits of GPUs."""
    ceiling = Ceiling(rules_may_act=may_act, actions=SHOWN_ACTIONS)
    case = a_case(a_subject(), action=action, asker="rule", ceiling=ceiling)
    is_free = action == "notify" or (may_act and action in (
        "limit", "release_limit", "pause", "resume", "suspend", "restore", "end", "cordon"))
    assert ("rules" not in codes(case)) == is_free
    assert "rules" not in codes(replace(case, asker="person")), "the control"


def test_what_the_ceiling_opens() -> None:
    open_wide = Ceiling(root_tasks=True, managed="allow", own_pid_namespace=True,
                        rules_may_act=True)
    case = a_case(a_subject(uid=0), ceiling=open_wide, manager="pod x", sees_host_pids=False,
                  asker="rule", kills_last_hour=2)
    assert codes(case) == []
    # Never who is protected by what they are.
    assert codes(replace(case, subjects=(a_subject(uid=0, oom=-1_000),))) == ["protected"]


def test_the_owners_verb_is_named() -> None:
    for manager, verb in (("slurm job 12", "scancel 12"), ("unit x.service", "systemctl stop"),
                          ("container 3fa", "docker stop"), ("pod 1-2", "kubectl delete")):
        [refusal] = refusals(a_case(manager=manager))
        assert verb in refusal.sentence


def test_no_kernel_gives_such_a_pid() -> None:
    assert made_up_refusal(PID_MAX) is None
    refusal = made_up_refusal(PID_MAX + 1)
    assert refusal is not None
    assert refusal.code == "made_up"


@pytest.mark.parametrize(("action", "asker", "expected"), [
    ("end", None, []), ("resume", None, []), ("notify", "rule", []),
    ("pause", None, ["condition"]), ("limit", None, ["condition"]),
    ("terminate_client", None, ["condition"]),
    ("end", "rule", ["condition"]), ("pause", "rule", ["condition"])])
def test_a_suspended_task_is_idle_to_nobody(action: str, asker: str | None, expected: list[str]
                                            ) -> None:
    subject = a_subject(suspended=True, kind="mps_client" if action == "terminate_client" else None)
    ceiling = Ceiling(rules_may_act=True)
    case = a_case(subject, action=action, asker=asker, ceiling=ceiling)
    assert codes(case) == expected
    running = a_subject(kind=subject.kind)
    assert codes(a_case(running, action=action, asker=asker, ceiling=ceiling)) == []


@pytest.mark.parametrize(("actions", "asker", "why"), [
    (("suspend",), "rule", ["type"]), (("suspend", "restore"), "rule", []),
    (("suspend",), "person", [])])
def test_a_rule_suspends_only_what_may_be_restored(actions: tuple[ShownAction, ...], asker: str,
                                                   why: list[str]) -> None:
    ceiling = Ceiling(rules_may_act=True, actions=actions)
    assert codes(a_case(action="suspend", asker=asker, ceiling=ceiling)) == why
