"""Words about the archive: the worst first is what somebody must do something about."""

from typing import Any

from gpudeck.words.archive import LATE_S, archive_words

NOW = 1_796_000_000.0
ARCHIVE: dict[str, Any] = {
    "state": "archiving", "failed_since": None, "why": None, "behind_s": 200.0, "files": 1_200,
    "bytes": 10**9, "waiting_files": 0, "single_copy_nodes": 0}


def words(**facts: Any) -> list[tuple[str, str]]:
    return [(word.verdict, word.says) for word in archive_words(ARCHIVE | facts, NOW)]


def test_a_hub_without_an_archive() -> None:
    assert words(state="none") == [
        ("ok", "no archive: history is in the hub's data folder alone")]


def test_an_archive_that_is_well() -> None:
    assert words() == [("ok", "1200 files of history in the archive"),
                       ("ok", "the archive is 3 min behind")]
    assert words(behind_s=None) == [("ok", "1200 files of history in the archive")]
    assert words(behind_s=None, waiting_files=1)[1] == ("ok", "1 file to be archived")


def test_one_that_fails_is_a_problem_after_an_hour() -> None:
    late = words(state="failed", failed_since=NOW - LATE_S, why="it is away", behind_s=LATE_S)
    assert late == [("problem", "nothing is archived since 2026-11-29 23:53Z: it is away"),
                    ("warning", "the archive is 1 h 0 min behind")]
    assert words(state="failed", failed_since=NOW - 60, why="it is away")[0][0] == "warning"


def test_a_node_with_a_single_copy_is_a_problem() -> None:
    assert words(single_copy_nodes=2)[-1] == (
        "problem", "2 nodes with a single copy: the hub's disk alone has what their journals lost "
        "before it was archived")


def test_a_hub_that_joins_what_is_there() -> None:
    assert words(state="joining")[0] == (
        "warning", "history of before this hub took over is being read from the archive and is not "
        "shown yet")
    assert words(state="joining", failed_since=NOW, why="it is away")[0][1].endswith(
        "; waiting since 2026-11-30 00:53Z: it is away")
