"""Arguments of --array and --after, and the summary of a run's parts."""

from pathlib import Path

import pytest

from agent.cli.runs.folder import RunFolders
from agent.cli.runs.request import (
    PARTS_MOST,
    RunName,
    RunPart,
    RunRequest,
    failure,
    parse_array,
    parse_run,
    parts_of,
    summary,
)
from gpudeck.errors import CommandError

REQUEST = RunRequest(7, "n1", 0.0, "/", (), ("true",), indices=(3, 5))


@pytest.mark.parametrize(("text", "indices", "at_once"), [
    ("0-49%4", range(50), 4), ("7", [7], None), ("1,3,5", [1, 3, 5], None),
    ("0-10:5,3%1", [0, 5, 10, 3], 1), ("3,3,1-3", [3, 1, 2], None),
    (f"1-{PARTS_MOST}", range(1, PARTS_MOST + 1), None)])
def test_an_array_is_read(text: str, indices: "list[int] | range", at_once: int | None) -> None:
    assert parse_array(text) == (tuple(indices), at_once)


@pytest.mark.parametrize(("text", "says"), [
    ("", "indices are written"), ("a-b", "indices are written"), ("1-", "indices are written"),
    ("-1", "indices are written"), ("5-1", "no index"), ("1-9:0", "no index"),
    ("0-49%", "how many run at once"), ("0-49%0", "how many run at once"),
    ("0-49%x", "how many run at once"), ("1;2", "indices are written"),
    (f"0-{PARTS_MOST}", "more than"), ("0-9999999", "indices are written")])
def test_what_is_no_array_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_array(text)


def test_a_run_is_named_with_its_index() -> None:
    assert parse_run("7") == RunName(7, None)
    assert parse_run("7.3") == RunName(7, 3)
    for text in ("", "7.", "x", "-7", "7.3.1", "../7", "\uff17"):
        with pytest.raises(ValueError, match="is no run"):
            parse_run(text)
    assert parts_of(REQUEST, None) == (3, 5)
    with pytest.raises(CommandError, match="run 7 has no index 4"):
        parts_of(REQUEST, 4)


def test_what_comes_after_begins_only_if_all_of_it_ended_well() -> None:
    good, bad = RunPart("ended", status=0), RunPart("ended", status=3)
    assert failure(REQUEST, {3: good, 5: good}) == ""
    assert failure(REQUEST, {3: good, 5: bad}) == "run 7.5 ended with status 3"
    assert failure(REQUEST, {3: RunPart("cancelled"), 5: bad}) == "run 7.3 was cancelled"
    assert failure(REQUEST, {3: RunPart("lost", "killed"), 5: good}) == "run 7.3 was lost: killed"
    assert summary([good, bad, good, RunPart("queued")]) == (
        "2 ended with status 0, 1 ended with status 3, 1 queued")


def test_the_number_of_a_removed_run_is_not_given_again(tmp_path: Path) -> None:
    """Processes that it left behind carry it, and would be ended with the later one."""
    runs = RunFolders({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    folders = [runs.make(REQUEST)[0] for _ in range(2)]
    runs.remove(folders[1])
    last, request = runs.make(REQUEST)
    assert (last.path.name, request.number) == ("3", 3)
    runs.remove(folders[0])
    assert runs.make(REQUEST)[1].number == 4
