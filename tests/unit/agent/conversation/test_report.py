"""Reports of a node about itself, to hubs of before as well."""

from typing import Annotated

import msgspec
from msgspec import Meta

from agent.conversation.report import NEWER, listed_actions
from dashboard.fleet.fleet import Fleet
from gpudeck.contract.action_table import SHOWN_ACTIONS
from gpudeck.contract.message_limits import Word
from gpudeck.contract.wire import Hello, decode_from_agent, encode
from tests.contract.messages import FROM_AGENT
from tests.unit.fleets import add_node


class FormerHello(msgspec.Struct, tag="hello"):
    """The message as the hub before this one reads it."""

    actions: Annotated[tuple[Word, ...], Meta(max_length=32)] = ()


def test_a_hub_of_before_takes_a_node_that_permits_everything() -> None:
    actions, more = listed_actions(SHOWN_ACTIONS)
    assert len((*actions, *more)) > 32
    assert {*actions, *more} == {*SHOWN_ACTIONS, "hold", "release"}
    assert {"hold", "release", "end"} <= {*actions}
    assert {*NEWER} <= {*more}
    whole = FROM_AGENT["hello"]
    assert isinstance(whole, Hello)
    message = encode(msgspec.structs.replace(whole, actions=actions, more_actions=more))
    assert msgspec.msgpack.decode(message, type=FormerHello).actions == actions
    node = add_node(Fleet(1), gpus=1)
    hello = decode_from_agent(message)
    assert isinstance(hello, Hello)
    node.hello = hello
    assert {*node.permits} == {*SHOWN_ACTIONS, "hold", "release"}


def test_few_actions_are_in_one_field() -> None:
    assert listed_actions(("notify", "restore")) == (("hold", "release", "notify", "restore"), ())
