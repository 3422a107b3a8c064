"""Watch over copies: the time of which this hub's disk has the only one."""

import logging

import pytest

from dashboard.fleet.state_machine import FleetStateMachine
from dashboard.history.ingest.message_places import MessagePlaces
from dashboard.history.storage.archive_mark import PlacesRecord
from dashboard.nodes.single_copies import SingleCopyWatch
from gpudeck.contract.wire import Beat, JournalCopies
from tests.unit.dashboard.fleet.test_state_machine import AgentLink
from tests.unit.fleets import MONO, NOW

START = 1_700_000_100 - 1_700_000_100 % 300


class PlacesHistory:
    """History of which only the places are asked."""

    def __init__(self, places: MessagePlaces | None) -> None:
        self.places = places

    def unarchived(self) -> list[object]:
        return [] if self.places is None else [*self.places.unarchived()]


def beat(agent: AgentLink, first: int) -> None:
    agent.send(Beat("ok", 0.1, 0, 0, copies=JournalCopies(first, None, None)))


def watch_of(places: MessagePlaces | None, machine: FleetStateMachine) -> SingleCopyWatch:
    return SingleCopyWatch(PlacesHistory(places), machine)  # type: ignore[arg-type]


def nodes_in(watch: SingleCopyWatch) -> str:
    return "".join(watch.families()).rpartition(" ")[2].strip()


def test_what_a_journal_gave_up_before_it_was_archived_is_on_this_disk_alone(
        caplog: pytest.LogCaptureFixture) -> None:
    machine, places = FleetStateMachine("hub", 1), MessagePlaces(PlacesRecord())
    agent, watch = AgentLink(machine), watch_of(places, machine)
    for seq, second in ((1, START), (2, START + 1), (3, START + 300), (4, START + 900)):
        places.note(("n1", "s1"), seq, second, is_new=True)
        places.note(("n1", "other"), seq, second, is_new=True)  # of a former journal
    watch.step(NOW, MONO)
    assert nodes_in(watch) == "0", "the node has not said what it has"
    beat(agent, 1)
    watch.step(NOW, MONO)
    assert nodes_in(watch) == "0"
    beat(agent, 4)
    with caplog.at_level(logging.WARNING, "gpudeck.nodes"):
        watch.step(NOW, MONO)
        watch.step(NOW, MONO + 1)
    assert nodes_in(watch) == "1"
    [line] = caplog.messages
    assert "host='n1.example' from=2023-11-14T22:15:00Z to=2023-11-14T22:20:00Z" in line
    for start in (START, START + 300, START + 900):
        places.close(start)
        places.mark_sealed(start)
    places.mark_archived(places.in_files())
    watch.step(NOW, MONO)
    assert nodes_in(watch) == "0"


def test_without_an_archive_of_seconds_nothing_is_watched() -> None:
    machine = FleetStateMachine("hub", 1)
    beat(AgentLink(machine), 4)
    watch = watch_of(None, machine)
    watch.step(NOW, MONO)
    assert [*watch.families()] == []
