"""Names of users and groups: what could not be looked up is not taken for what is not there."""

import errno
import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from agent.readings import ProcessReading
from agent.tasks import user_table
from agent.tasks.people import SOON_S, SystemPeople, TaskUsers
from agent.tasks.task_table import TaskTable
from gpudeck.contract.wire import Task
from tests.fakes.hub import wait_for

ROOT = Path(__file__).parents[4]
# In a process that has looked nobody up yet: later on the system itself remembers some.
WITHOUT_FILE_DESCRIPTORS = """
import os, resource, sys
from agent.tasks import user_table
from agent.tasks.people import SystemPeople

uid, gid, nobody = map(int, sys.argv[1:])
people = SystemPeople()
looks = (lambda: user_table.user_name(uid), lambda: user_table.uid_of("daemon"),
         lambda: user_table.groups_of(uid), lambda: user_table.group_names([gid]),
         lambda: people.name_of(uid, 0))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
lowest = os.dup(0)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
for look in looks:
    try:
        print("found", look())
    except OSError as error:
        print(error.errno)
people.look_up(uid)
print(people.groups_of(uid), user_table.name_of(uid))
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for look in looks:
    print(look())
people.look_up(uid)
print(people.groups_of(uid), user_table.name_of(uid), user_table.user_name(nobody))
"""


def test_for_want_of_a_file_descriptor_nobody_is_unknown() -> None:
    daemon = pwd.getpwnam("daemon")
    uids = {account.pw_uid for account in pwd.getpwall()}
    nobody = next(uid for uid in range(40_000, 50_000) if uid not in uids)
    child = subprocess.run(
        [sys.executable, "-c", WITHOUT_FILE_DESCRIPTORS, str(daemon.pw_uid), str(daemon.pw_gid),
         str(nobody)], cwd=ROOT, text=True, capture_output=True, timeout=60, check=False)
    assert child.returncode == 0, child.stderr
    groups = str(("daemon",))
    assert child.stdout.splitlines() == [
        *[str(errno.EMFILE)] * 5, f"None uid {daemon.pw_uid}",
        "daemon", str(daemon.pw_uid), groups, groups, "daemon", f"{groups} daemon None"]


@pytest.fixture
def nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fail look-ups, as without a free file descriptor, until the fixture is called."""
    def absent(uid: int) -> None:
        raise KeyError(uid)

    def no_file() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    user_table._user_name.cache_clear()
    monkeypatch.setattr(pwd, "getpwuid", absent)
    monkeypatch.setattr(user_table, "_open_a_file", no_file)
    return monkeypatch.undo


def test_the_user_of_a_task_is_not_known_until_they_are_looked_up(
        nobody_is_found: Callable[[], None]) -> None:
    table = TaskTable("boot")

    def task() -> Task:
        [gpu_task] = table.describe([ProcessReading(os.getpid(), "GPU-1", 1, None, "compute")])
        return gpu_task.task

    first = task()
    assert (first.user, first.groups, first.uid) == (None, (), os.getuid())
    assert first.command is not None
    nobody_is_found()
    second = task()
    assert (second.id, second.user) == (first.id, pwd.getpwuid(os.getuid()).pw_name)
    assert second is task(), "what is known is read once"


def test_a_task_is_listed_before_a_directory_service_has_said_whose_it_is(
        monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    look = user_table.user_name
    monkeypatch.setattr(user_table, "user_name", lambda uid: (answers.wait(60), look(uid))[1])
    table = TaskTable("boot", users=TaskUsers())

    def user() -> str | None:
        [gpu_task] = table.describe([ProcessReading(os.getpid(), "GPU-1", 1, None, "compute")])
        return gpu_task.task.user

    began = time.monotonic()
    assert [user() for _ in range(10)] == [None] * 10
    assert time.monotonic() - began < 10 * SOON_S
    answers.set()
    wait_for(lambda: user() == pwd.getpwuid(os.getuid()).pw_name)


def test_groups_that_could_not_be_looked_up_are_asked_for_again(
        nobody_is_found: Callable[[], None]) -> None:
    people = SystemPeople(lambda: 0.0)
    people.look_up(os.getuid())
    assert people.groups_of(os.getuid()) is None
    nobody_is_found()
    people.look_up(os.getuid())
    assert people.groups_of(os.getuid()) == user_table.groups_of(os.getuid()) != ()


def test_who_was_not_found_for_a_task_may_be_there_when_the_next_begins(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory service that is away says that nobody has this number."""
    monkeypatch.setattr(user_table, "user_name", lambda uid: None)
    users, key = TaskUsers(), (os.getuid(), ())
    assert users(*key)[0] == user_table.uid_words(os.getuid())
    monkeypatch.undo()
    assert users(*key)[0] == pwd.getpwuid(os.getuid()).pw_name


def test_of_many_users_of_tasks_only_the_first_is_waited_for(
        monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(user_table, "user_name", lambda uid: (answers.wait(60), f"u{uid}")[1])
    users = TaskUsers()
    began = time.monotonic()
    for uid in range(40):
        with pytest.raises(OSError, match="temporarily"):
            users(uid, ())
    assert time.monotonic() - began < 20 * SOON_S
    answers.set()

    def name(uid: int) -> str | None:
        try:
            return users(uid, ())[0]
        except OSError:
            return None

    for uid in range(40):
        assert wait_for(partial(name, uid)) == f"u{uid}"
