"""Permissions, as a function of the actor who asks."""

import itertools
import random

import pytest

from dashboard.access.policy import (
    FRESH_S,
    TABLE,
    AccessTarget,
    Actor,
    DenialReason,
    Kind,
    PermissionReach,
    Role,
    Scope,
    may,
    name_flaw,
    scope_flaw,
    unlisted,
)

EVERYWHERE = Scope(("*",))
NOW = 1_000.0


def person(role: str, scope: Scope = EVERYWHERE, name: str = "me", fresh: bool = True) -> Actor:
    return Actor("person", name, Role(role), scope, "s1", NOW + 1 if fresh else None)


def why(actor: Actor | None, verb: str, target: AccessTarget | None = None) -> DenialReason | None:
    refusal = may(actor, verb, target, NOW)
    return None if refusal is None else refusal.why


def test_roles_are_in_order() -> None:
    for at, role in enumerate(Role):
        assert [role.covers(other) for other in Role] == [there <= at for there in range(4)]


@pytest.mark.parametrize("verb", sorted(TABLE))
def test_closed_by_default(verb: str) -> None:
    row = TABLE[verb]
    assert (why(None, verb) is None) == row.is_open
    # A rule has no row yet, and neither kind nor role opens what is for the folder's owner.
    for actor in (Actor("rule", "r", Role.ADMIN, EVERYWHERE), Actor("person", "x"),
                  Actor("program", "x")):
        assert (may(actor, verb, None, NOW) is None) == row.is_open
    if row.is_local:
        assert why(person("admin"), verb) is DenialReason.FORBIDDEN


def test_what_has_no_row_is_for_nobody() -> None:
    assert why(person("admin"), "DELETE /api/v1/everything") is DenialReason.FORBIDDEN
    assert why(None, "DELETE /api/v1/everything") is DenialReason.UNKNOWN
    assert unlisted(["GET /", "GET /x", "/live shout"]) == ["/live shout", "GET /x"]


def test_a_password_goes_stale() -> None:
    actor = person("admin")
    assert actor.fresh_until is not None
    for now, reason in ((actor.fresh_until - 0.1, None), (actor.fresh_until, DenialReason.STALE)):
        refusal = may(actor, "POST /api/v1/users", None, now)
        assert (refusal and refusal.why) == reason
    assert why(person("admin", fresh=False), "POST /api/v1/tokens") is DenialReason.STALE
    assert why(person("admin", fresh=False), "DELETE /api/v1/tokens/<token_id>") is None
    assert why(Actor("program", "ci", Role.ADMIN, EVERYWHERE), "POST /api/v1/users") is None
    assert FRESH_S == 300


OWN = "PATCH /api/v1/users/<name>"


@pytest.mark.parametrize(("actor", "target", "reason"), [
    (person("viewer"), AccessTarget("me"), None),
    (person("viewer"), AccessTarget("you"), DenialReason.FORBIDDEN),
    (person("operator"), AccessTarget("me", Role.ADMIN), DenialReason.FORBIDDEN),
    (person("operator"), AccessTarget("me", scope=EVERYWHERE), DenialReason.FORBIDDEN),
    (person("viewer"), AccessTarget("me", Role.VIEWER), DenialReason.FORBIDDEN),
    (person("admin"), AccessTarget("you", Role.ADMIN, EVERYWHERE), None),
    (Actor("program", "me", Role.VIEWER, EVERYWHERE), AccessTarget("me"), DenialReason.FORBIDDEN),
])
def test_ones_own_password_and_no_more(actor: Actor, target: AccessTarget,
                                       reason: DenialReason | None) -> None:
    assert why(actor, OWN, target) == reason


def test_a_setting_is_not_called_somebodys_task() -> None:
    """A MIG layout has no owner: its refusal names the role, and not tasks."""
    denials = [may(person("user"), "POST /api/v1/previews", AccessTarget(owners=owners), NOW)
               for owners in (("bob",), (None,))]
    assert [denial and denial.sentence for denial in denials] == [
        "these are not your own tasks; an operator may do this",
        "this needs the role operator; yours is user"]


def test_nobody_gives_more_than_they_have() -> None:
    lab = person("admin", Scope(("lab",), ("al",)))
    for scope, reason in ((Scope(("lab",)), None), (Scope(("lab",), ("al",)), None),
                          (Scope(("*",)), DenialReason.FORBIDDEN),
                          (Scope(("lab", "x")), DenialReason.FORBIDDEN),
                          (Scope(("lab",), ("root",)), DenialReason.FORBIDDEN)):
        for verb in ("POST /api/v1/users", "POST /api/v1/tokens"):
            assert TABLE[verb].reach is PermissionReach.GRANT
            assert why(lab, verb, AccessTarget(role=Role.ADMIN, scope=scope)) == reason


def test_scopes() -> None:
    scope = Scope(("a", "b"), ("al",))
    assert [scope.sees(group) for group in ("a", "b", "c", "*", "")] == [True, True, False, False,
                                                                         False]
    assert not Scope().sees("default")
    assert Scope(("*",)).sees("anything")
    assert scope.owns("al")
    assert not any(scope.owns(name) for name in ("bo", "", None, "*"))


def test_more_role_never_may_less() -> None:
    kinds: tuple[Kind, ...] = ("person", "program")
    for verb, kind in itertools.product(TABLE, kinds):
        permissions = [why(Actor(kind, "x", role, EVERYWHERE, "s", NOW + 9), verb) is None
                       for role in Role]
        assert permissions == sorted(permissions), verb


@pytest.mark.parametrize("name", ["a", "alice", "a.b_c-d@e.example", "0", "x" * 64])
def test_names(name: str) -> None:
    assert name_flaw(name) is None


@pytest.mark.parametrize("name", ["", "A", "-a", "a b", "a\n", "<b>", "x" * 65, "é", "../a", "a/b"])
def test_what_is_no_name(name: str) -> None:
    assert name_flaw(name) is not None


def test_scopes_hold_no_white_space() -> None:
    """Scopes are stored in one line with a space between them."""
    spaces = [chr(at) for at in range(0x3001) if chr(at).isspace()]
    for space in spaces:
        assert scope_flaw(Scope(("*",), (f"a{space}b",))) is not None
        assert scope_flaw(Scope((f"a{space}b",))) is not None
    assert scope_flaw(Scope(())) is not None
    assert scope_flaw(Scope(("*", "lab-1"), ("DOM\\al", "al@x"))) is None
    assert scope_flaw(Scope(tuple(f"g{at}" for at in range(101)))) is not None


def test_random_actors_and_targets_never_raise() -> None:
    chance = random.Random(random.random())
    for _ in range(2_000):
        scope = Scope(tuple(chance.choices(("*", "a", "b"), k=chance.randrange(3))))
        actor = Actor(chance.choice(("person", "program", "agent", "rule")), "me",
                      chance.choice([*Role, None]), scope, "s", chance.choice((None, NOW + 1)))
        target = AccessTarget(chance.choice((None, "me", "you")), chance.choice([*Role, None]),
                              chance.choice((None, scope, EVERYWHERE)))
        refusal = may(actor, chance.choice([*TABLE, "x"]), target, NOW)
        assert refusal is None or refusal.sentence
