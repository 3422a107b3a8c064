"""Words that a terminal shows before, during and after an act."""

import itertools
import random

import pytest
from msgspec.structs import replace

from gpudeck.contract.actions import FINAL, LIFE
from gpudeck.errors import ExitCode
from gpudeck.words.actions import (
    EXIT_OF,
    age,
    end_line,
    exit_code,
    gib,
    preview_lines,
    question,
    short,
    step_line,
)
from tests.unit.shown_actions import command, item, preview


def preview_text(**other: object) -> str:
    chance = random.Random(random.random())
    return "\n".join(preview_lines(preview(chance, items=[item(chance, **other)])))


def test_all_that_a_person_must_know_is_shown() -> None:
    chance = random.Random(random.random())
    job = item(chance, keep={"until": 64_800.0, "because": "paper", "by": "alice"},
               warnings=["what was not saved is lost"], manager="slurm job 42")
    text = "\n".join(preview_lines(preview(chance, items=[job])))
    words = ["rack-3", "alice", "python train.py", "2 h 3 min", "2.0 GiB", job["job_id"],
             "slurm job 42", "1970-01-01 18:00 UTC: paper (alice)", "what was not saved is lost",
             "SIGTERM, 30 s of grace, SIGKILL",
             *(str(process["pid"]) for process in job["processes"]),
             *(bystander["task_id"] for bystander in job["bystanders"])]
    assert [word for word in words if word not in text] == []


def test_a_gpu_is_named_by_its_index() -> None:
    """Found by an examiner: a preview said "on GPU GPU-a6a3a450"."""
    gpu = {"uuid": "GPU-a6a3a450-1c2d", "index": 7, "mem_used_bytes": 2.0**30}
    text = preview_text(gpus=[gpu], bystanders=[])
    assert "on GPU 7 (1.0 GiB)" in text
    assert "GPU-" not in text
    assert "on GPU GPU-a6a3a450 (1.0 GiB)" in preview_text(gpus=[{**gpu, "index": None}])


@pytest.mark.parametrize(("setting", "headline"), [
    ({"gpu_uuid": "GPU-a6a3a450-1c2d"}, "on rack-3, GPU-a6a3a450-1c2d"),
    ({"gpu_uuid": "*"}, "on rack-3"), ({"share_pct": 50}, "on rack-3")])
def test_a_setting_names_its_gpu(setting: dict[str, object], headline: str) -> None:
    chance = random.Random(random.random())
    change = {"what": "MIG", "before": "none", "after": "2x 3g.40gb"}
    view = preview(chance, items=[item(chance, changes=[change])])
    text = preview_lines(replace(view, params={**view.params, "setting": setting}))[0]
    assert text.endswith(headline)


def test_unknown_is_said_and_is_not_zero() -> None:
    text = preview_text(owner=None, command=None, age_s=None, mem_used_bytes=None)
    assert text.count("unknown") >= 4
    assert gib(None) == "unknown" != gib(0.0)
    assert age(None) == "unknown" != age(0.0)


def test_a_refusal_is_shown_and_left_out() -> None:
    text = preview_text(refusals=[{"code": "protected", "sentence": "it is the display server"}])
    assert "REFUSED  it is the display server (protected)" in text
    assert "1 of 1 job would be refused and is left out" in text


def test_escape_sequences_do_not_reach_the_terminal() -> None:
    evil = "\x1b[2Jrm\r\n"
    text = preview_text(owner=evil, command=evil, host=evil, manager=evil, warnings=[evil],
                        refusals=[{"code": "gone", "sentence": evil}],
                        bystanders=[{"task_id": evil, "user": evil, "command": evil, "gpus": []}],
                        keep={"until": 0.0, "because": evil, "by": evil},
                        processes=[{"pid": 1, "user": evil, "command": evil, "task_id": evil}])
    finished = command("done", sentence=evil, host=evil, step=evil)
    for line in [*text.split("\n"), step_line(finished, 0.0), end_line(finished)]:
        assert line.isprintable()


def test_long_lists_are_cut_and_say_so() -> None:
    processes = [{"pid": pid, "user": None, "command": None, "task_id": None}
                 for pid in range(1_000, 1_100)]
    text = preview_text(processes=processes)
    assert "100 processes" in text
    assert "and 88 processes more; --json lists all" in text


@pytest.mark.parametrize(("seconds", "text"), [
    (0.0, "0 s"), (59.9, "59 s"), (60.0, "1 min"), (3_600.0, "1 h 0 min"), (86_400.0, "1 d 0 h"),
    (200_000.0, "2 d 7 h")])
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_one_job_asks_for_yes_and_enter_means_no() -> None:
    chance = random.Random(random.random())
    dialog = question(preview(chance, items=[item(chance)]))
    assert "of alice" in dialog.prompt
    assert [dialog.is_yes(word) for word in ("", "n", "yes please", "y", " YES ")] == [
        False, False, False, True, True]


def test_ending_several_asks_for_a_name() -> None:
    chance = random.Random(random.random())
    jobs = [item(chance), item(chance)]
    dialog = question(preview(chance, items=jobs))
    name = short(jobs[0]["task_ids"][0])
    assert name in dialog.prompt
    assert dialog.is_yes(name)
    assert not any(dialog.is_yes(word) for word in ("", "y", "yes", short(jobs[1]["task_ids"][0])))
    assert question(preview(chance, "pause", jobs)).is_yes("y")


def test_a_refused_job_is_not_the_name() -> None:
    chance = random.Random(random.random())
    refused_job = item(chance, refusals=[{"code": "hold", "sentence": "held"}])
    jobs = [refused_job, item(chance), item(chance)]
    assert question(preview(chance, items=jobs)).is_yes(short(jobs[1]["task_ids"][0]))


def test_every_outcome_has_its_exit_code() -> None:
    assert set(EXIT_OF) == FINAL
    assert len(set(EXIT_OF.values())) == len(EXIT_OF)
    assert [state for state, code in EXIT_OF.items() if code == ExitCode.OK] == ["done"]


def test_of_several_the_worst_counts() -> None:
    for first, second in itertools.product(FINAL, FINAL):
        code = exit_code([first, second])
        assert code in (EXIT_OF[first], EXIT_OF[second])
        assert (code == ExitCode.OK) == (first == second == "done")
    assert exit_code(["done", "acting"]) == ExitCode.UNKNOWN
    assert exit_code([]) == ExitCode.REFUSED


def test_every_state_has_words() -> None:
    for state in LIFE:
        assert state in step_line(command(state), 0.0)
        assert end_line(command(state))
