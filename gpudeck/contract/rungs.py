"""Reasons that an action cannot be done to a target at all. Pure.

One function for the node that acts, for a rule that is being written and for a rehearsal over
history, so that all three refuse for the same reason. A fact that is None is not known here and
refuses nothing: the node that acts knows it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from msgspec import Struct

from gpudeck.contract.action_table import HITS, KILLS, ROWS, Action
from gpudeck.contract.actions import Refusal
from gpudeck.contract.ladder import Do


class RulesCeiling(Struct, frozen=True):
    """Permissions that the ceiling of a node gives to rules, beside the actions that it permits at
    all."""

    may_act: bool
    may_hit_managed: bool


@dataclass(frozen=True, slots=True)
class RungTarget:
    """Facts about the target of a rung. `is_one_tree`: its processes are proven to be one tree of
    one user. `meant`: the tasks that the rule matches; `tree`: those in the processes that an
    action would hit. Nothing has a default: what was not asked must not permit."""

    actions: Collection[str] | None  # that the ceiling of its node permits
    rules: RulesCeiling | None
    manager: str | None  # None: nobody's
    is_mps_client: bool
    processes: int | None
    is_one_tree: bool | None
    meant: frozenset[str]
    tree: frozenset[str] | None
    other_nodes: int


def refusal(action: Action, of: RungTarget) -> Refusal | None:
    """Return why a rule can never do this; None: no known fact is against it."""
    tree = of.meant if of.tree is None else of.tree
    return next(chain(
        by_nodes(action, of.other_nodes), by_ceiling(action, of), by_rules(action, of),
        by_manager(action, of), by_mps(action, of), by_tree(action, of),
        by_tasks(action, of.meant, tree)), None)


def by_ceiling(action: Action, of: RungTarget) -> Iterator[Refusal]:
    if of.actions is not None and action not in of.actions:
        yield no_such(action)


def no_such(action: Action) -> Refusal:
    return Refusal("type", f"the ceiling of this node does not permit {action!r}; its "
                           "administrator can add it to `actions` in ceiling.toml.")


def by_rules(action: Action, of: RungTarget) -> Iterator[Refusal]:
    row = ROWS[action]
    if not row.for_rules:
        yield Refusal("rules", "rules can only tell, limit, pause and end.")
    if not row.only_tells and of.rules is not None and not of.rules.may_act:
        yield Refusal("rules", "the ceiling of this node does not let rules act; its administrator "
                               "can set `rules_may_act = true`.")


def by_manager(action: Action, of: RungTarget) -> Iterator[Refusal]:
    if action in HITS and of.manager is not None and of.rules is not None and (
            not of.rules.may_hit_managed):
        yield Refusal("managed", f"it belongs to {of.manager}, which would restart it or "
                                 f"lose track of it; {_owners_verb(of.manager)}")


def by_mps(action: Action, of: RungTarget) -> Iterator[Refusal]:
    if of.is_mps_client and ROWS[action].signals and action not in KILLS:
        yield Refusal("mps", "it is an MPS client: pausing it would stall every other client of "
                             "its server. MPS clients are never paused.")


def by_tree(action: Action, of: RungTarget) -> Iterator[Refusal]:
    """Refuse to stop a part of a job, which would hang the rest of it."""
    if action in ("pause", "suspend") and of.is_one_tree is False:
        yield Refusal("multi_process", f"the job has {of.processes or 'several'} processes that "
                                       "are not proven to be one process tree of one user; rules "
                                       f"{action} nothing else.")


def by_tasks(action: Action, matched: frozenset[str], tree: frozenset[str]) -> Iterator[Refusal]:
    """Refuse unless the action hits all tasks that the rule matches, and no other."""
    if action not in HITS:
        return
    if beside := sorted(tree - matched):
        yield Refusal("changed", f"its processes are one job with task {beside[0]}, which the rule "
                                 "does not match; write the rule about jobs (of: job)")
    if missing := matched - tree:
        yield Refusal("multi_process", f"{len(missing)} of its {len(matched)} tasks are in "
                                       "separate processes; automatic actions apply to "
                                       "one process tree only")


def by_nodes(action: Action, other_nodes: int) -> Iterator[Refusal]:
    """Hold back while other nodes run some of it: nothing is refused for good, it waits for that to
    end."""
    if action in HITS and other_nodes:
        yield Refusal("hold", f"some of it runs on {other_nodes} more "
                              f"node{'s' * (other_nodes > 1)}; an action stays on one")


def out_of_place(dos: Sequence[Do]) -> Iterator[tuple[int, str]]:
    """Yield rungs that no target can reach, by their number, with the reason."""
    for number, do in enumerate(dos):
        if "end" in dos[:number]:
            yield number, "it comes after 'end', and an ended task is gone"
        elif do == "pause" and "pause" in dos[:number]:
            yield number, "it comes after 'pause', and a paused task is stopped already"
        elif do == "limit" and {"limit", "pause"} & {*dos[:number]}:
            yield number, "it comes after 'limit' or 'pause', and nothing is gained by it"


def _owners_verb(manager: str) -> str:
    kind, _, name = manager.partition(" ")
    verbs = {
        "slurm": f"use `scancel {name.removeprefix('job ')}`" if name.startswith("job ")
        else "use `scancel`",
        "pbs": f"use `qdel {name.removeprefix('job ')}`",
        "lsf": f"use `bkill {name.removeprefix('job ')}`",
        "kubernetes": f"use `kubectl delete {name}`",
        "pod": f"use `kubectl delete pod` (uid {name})",
        "container": f"use `docker stop {name}` or its runtime's command",
        "unit": f"use `systemctl stop {name}`",
    }
    verb = verbs.get(kind, "end it there")
    return f"{verb}. The node's ceiling can set `managed = \"allow\"`."
