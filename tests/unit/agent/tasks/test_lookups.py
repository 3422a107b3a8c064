"""Look-ups of users behind a directory service that takes its time."""

import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.tasks import user_table
from agent.tasks.lookups import MOST, Lookups
from tests.patience import GIVE_UP_S

ROOT = Path(__file__).parents[4]
SLOW = """
#include <grp.h>
#include <unistd.h>
int getgrouplist(const char *user, gid_t group, gid_t *groups, int *count)
{ (void)user; sleep(2); groups[0] = group; return *count = 1; }
"""
COUNTS = """
import threading, time
from agent.tasks import user_table

turns = 0
def count():
    global turns
    while True:
        turns += 1
        time.sleep(0.01)

threading.Thread(target=count, daemon=True).start()
user_table.groups_of(0)
print(turns)
"""


class Directory:
    """Table that answers when it is told to."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.questions: list[str] = []

    def look(self, name: str) -> int | str:
        self.questions.append(name)
        assert self.answers.wait(GIVE_UP_S)
        return len(name) if name.isalpha() else f"no {name}"


@pytest.fixture
def directory() -> Iterator[Directory]:
    directory = Directory()
    yield directory
    directory.answers.set()


def soon(lookups: "Lookups[str, int | str]", key: str) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while lookups.last(key) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_waits_for_it_twice(directory: Directory) -> None:
    lookups = Lookups("a test", directory.look, 10.0)
    assert lookups.last("ann") is None
    began = time.monotonic()
    assert lookups.all_soon({"ann", "bob"}, 0.1) == {}
    assert time.monotonic() - began >= 0.1
    began = time.monotonic()
    for _ in range(20):
        assert lookups.all_soon({"ann", "bob"}, 10.0) == {}
    assert time.monotonic() - began < 5.0
    directory.answers.set()
    soon(lookups, "bob")
    assert lookups.all_soon({"ann", "bob", "carol"}, GIVE_UP_S) == {"ann": 3, "bob": 3, "carol": 5}
    assert sorted(directory.questions) == ["ann", "bob", "carol"], "each once"


def test_an_old_answer_stays_until_there_is_another(directory: Directory) -> None:
    now = 0.0
    lookups = Lookups("a test", directory.look, 10.0, lambda: now)
    directory.answers.set()
    lookups.look_up("ann")
    directory.answers.clear()
    now = 11.0
    assert lookups.last("ann") == 3
    assert lookups.all_soon({"ann"}, 0.01) == {}, "it may not be true any more"


def test_who_is_not_there_is_looked_up_again(directory: Directory) -> None:
    lookups = Lookups("a test", directory.look, 1e9, is_kept=lambda answer: answer != "no 7")
    directory.answers.set()
    for _ in range(3):
        assert lookups.all_soon({"7"}, GIVE_UP_S) == {"7": "no 7"}
    assert directory.questions == ["7"] * 3


def test_a_hub_that_names_many_fills_no_memory(directory: Directory) -> None:
    lookups = Lookups("a test", directory.look, 1e9)
    directory.answers.set()
    for number in range(MOST + 10):
        lookups.look_up(f"user {number}")
    assert len(lookups._answers) == MOST


def test_a_user_has_the_groups_that_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_table, "GROUPS_AT_FIRST", 1)
    for account in pwd.getpwall():
        name, gid = account.pw_name, account.pw_gid
        assert user_table._group_numbers(name, gid) == os.getgrouplist(name, gid)
    monkeypatch.setattr(user_table, "GROUPS_AT_LAST", 0)
    with pytest.raises(OSError, match="memory"):
        user_table._group_numbers("root", 0)


def test_while_a_directory_service_says_who_is_in_which_group_other_threads_go_on(
        tmp_path: Path) -> None:
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    child = subprocess.run([sys.executable, "-c", COUNTS], cwd=ROOT, text=True, timeout=60,
                           env=os.environ | {"LD_PRELOAD": str(library)}, capture_output=True,
                           check=False)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) > 20


def test_no_answer_counts_for_ever(directory: Directory) -> None:
    now = 0.0
    lookups = Lookups("a test", directory.look, 10.0, lambda: now, valid_s=100.0)
    directory.answers.set()
    lookups.look_up("ann")
    directory.answers.clear()
    now = 99.0
    assert lookups.last("ann") == 3
    now = 101.0
    assert lookups.last("ann") is None, "who has left a group since is believed no more"
    directory.answers.set()
    soon(lookups, "ann")
