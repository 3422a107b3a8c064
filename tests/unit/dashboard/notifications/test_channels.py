"""The table of channels is the only list of them: API, docs and senders read it."""

import ast
from pathlib import Path

import msgspec
import pytest

from dashboard.notifications.channels.channel import Channel
from dashboard.notifications.channels.table import CHANNELS, TABLE
from dashboard.notifications.receiver_directory import ReceiverDirectory
from dashboard.notifications.receivers import Receiver
from dashboard.notifications.store import NotificationsStore
from dashboard.notifications.views import ChannelView, NewReceiver
from dashboard.state import HubState

ROOT = Path(__file__).resolve().parents[4]
PACKAGE = ROOT / "dashboard/notifications"
OUTSIDE = sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name != "channels")


def test_the_api_takes_the_kinds_of_the_table_and_no_other() -> None:
    [schema] = msgspec.json.schema_components([NewReceiver])[1].values()
    assert schema["properties"]["kind"]["enum"] == sorted(CHANNELS)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "x", "kind": "pigeon"}, NewReceiver)


@pytest.mark.parametrize("channel", TABLE, ids=lambda channel: channel.kind)
def test_the_docs_have_its_row(channel: type[Channel]) -> None:
    page = (ROOT / "docs/notifications.md").read_text()
    assert f"| {channel.kind} | {channel.description} |" in page


@pytest.mark.parametrize("channel", TABLE, ids=lambda channel: channel.kind)
def test_the_page_has_it_from_the_hub(channel: type[Channel]) -> None:
    """A channel is its file and its row: no page names it."""
    view = msgspec.convert(channel, ChannelView, from_attributes=True)
    assert (view.kind, view.title) == (channel.kind, channel.title)
    assert (view.destination, view.needs_mail) == (channel.destination, channel.needs_mail)
    page = (ROOT / "dashboard/pages/settings/receivers.py").read_text()
    assert f'"{channel.kind}"' not in page


def test_a_receiver_of_an_unknown_kind_is_found_at_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    state = HubState.open(tmp_path)
    state.store(NotificationsStore).put_receiver(Receiver("r1", "x", "pigeon"))
    with pytest.raises(KeyError):
        ReceiverDirectory(state.store(NotificationsStore))
    state.close()


def test_nobody_else_asks_for_a_kind() -> None:
    """Apart from comparing two receivers, which says nothing of any channel."""
    asks = [f"{path.name}:{node.lineno}" for path in OUTSIDE
            for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Compare)
            for operand in (node.left, *node.comparators)
            if isinstance(operand, ast.Constant) and operand.value in CHANNELS]
    assert asks == []
