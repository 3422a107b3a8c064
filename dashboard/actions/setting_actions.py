"""Actions on MPS and on GPUs instead of on tasks: what is meant, and who may. The rest is
dashboard/actions/service.py, as for any action."""

from dataclasses import dataclass

from msgspec.structs import replace

from gpudeck.action_table import SETTING_ACTIONS, ShownAction
from gpudeck.actions import NO_TASK, ActionParams
from gpudeck.limits import GPU_SETTINGS, action_of

from ..fleet.fleet import Fleet
from ..fleet.visibility import VisibleFleet


class InvalidSettingActionError(Exception):
    """What is asked for does not fit together. The sentence says what to do."""


class UnknownTargetError(Exception):
    """There is no such Node or Gpu here, or none that may be known of."""


@dataclass(frozen=True, slots=True)
class ResolvedSettingAction:
    node_id: str
    host: str
    params: ActionParams


def is_setting(action: ShownAction, params: ActionParams) -> bool:
    return action in SETTING_ACTIONS or params.setting is not None


def resolve(fleet: Fleet, visible: VisibleFleet, action: ShownAction, targets: list[str],
            params: ActionParams) -> ResolvedSettingAction:
    """One target: of MPS a Node, by id; else a Gpu, by UUID."""
    setting = params.setting
    if setting is None or action_of(setting) != action:
        raise InvalidSettingActionError(f"{action} needs `params.setting` of its own kind, and no "
                                        "other act has "
                                        "one; see the API's description")
    if len(targets) != 1:
        raise InvalidSettingActionError("a setting has one target: a node's id for MPS, else a "
                                        "Gpu's UUID")
    target = targets[0]
    if not isinstance(setting, GPU_SETTINGS):
        return _on(fleet, visible, target, params)
    if setting.gpu_uuid != target:
        raise InvalidSettingActionError("the target and `gpu_uuid` are not the same Gpu")
    for node in visible.nodes(fleet):
        facts = () if node.listing is None else node.listing.inventory.gpus
        if any(each.uuid == target and each.parent_uuid is None for each in facts):
            return _on(fleet, visible, node.hello.node_id, params)
        if any(each.uuid == target for each in facts):
            raise InvalidSettingActionError("this is a MIG instance; limits are of the whole board")
    raise UnknownTargetError(f"there is no Gpu {target[:128]!r} here")


def _on(fleet: Fleet, visible: VisibleFleet, node_id: str,
        params: ActionParams) -> ResolvedSettingAction:
    node = fleet.nodes.get(node_id)
    if node is None or not visible.sees_node(node_id):
        raise UnknownTargetError(f"there is no node {node_id[:128]!r} here")
    # What an act does not use must not tell two equal ones apart.
    return ResolvedSettingAction(node_id, node.hello.host, replace(params, text=""))


TASKS = (NO_TASK,)
