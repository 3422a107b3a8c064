"""User names on a simulated node, and the file that stands for its people's terminals."""

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.actions.context import people_of
from agent.backends import NVML, SIMULATED
from agent.backends.simulation.people import SimulatedPeople, open_people
from agent.tasks import terminals
from agent.tasks.people import SystemPeople
from gpudeck.simulated_user import USER_ENV


def test_a_process_says_whose_it_is_in_the_story(tmp_path: Path) -> None:
    people = SimulatedPeople(None)
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"],
                             env={**os.environ, USER_ENV: "alice"}, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert people.name_of(os.getuid(), child.pid) == "alice"
    assert SystemPeople().name_of(os.getuid(), child.pid) == getpass.getuser()
    assert people.name_of(os.getuid(), os.getpid()) == getpass.getuser()
    child.communicate("\n")
    assert people.name_of(os.getuid(), child.pid) == getpass.getuser(), "it has gone"
    assert people.uids_of({"alice"}) == {"alice": os.geteuid()}
    people.look_up(os.getuid())
    assert people.groups_of(os.getuid()) == ()


def test_no_real_terminal_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "notify", lambda *_: pytest.fail("at a real terminal"))
    people = open_people(f"node=n001,world={tmp_path}")
    assert people.notify(os.getuid(), ["nothing has run on your GPUs", "", "a\nb"]).terminals == 1
    lines = (tmp_path / "terminals.txt").read_text().splitlines()
    assert [line.partition("] ")[2] for line in lines] == ["nothing has run on your GPUs", "a b"]


def test_only_a_simulated_node_believes_a_name(tmp_path: Path) -> None:
    assert type(people_of(NVML, "")) is SystemPeople
    assert isinstance(people_of(SIMULATED, f"world={tmp_path}"), SimulatedPeople)
