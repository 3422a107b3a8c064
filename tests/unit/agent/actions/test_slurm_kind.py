from msgspec.structs import replace

from agent.actions.kinds.slurm import _IS_DONE, SlurmPreview, flaws, job_of, warnings
from gpudeck.contract.slurm import (
    SlurmCancel,
    SlurmContinue,
    SlurmDrain,
    SlurmHold,
    SlurmJob,
    SlurmNode,
    SlurmRelease,
    SlurmRequeue,
    SlurmResume,
    SlurmSetting,
    SlurmSuspend,
)

RUNNING = SlurmJob(12, "12", "RUNNING", 100.0, "carol", gpus=2)
WAITING = replace(RUNNING, state="PENDING", reason="Priority")
HELD = replace(WAITING, reason="JobHeldUser")
NODE = SlurmNode("n1", "n1", ("IDLE",), 8, 0)


def codes(setting: SlurmSetting, job: SlurmJob | None = None, node: SlurmNode | None = None,
          trouble: str = "", rights: str = "all", account: str = "slurm") -> list[str]:
    return [flaw.code for flaw in flaws(
        setting, SlurmPreview(trouble, account, rights, job, node))]  # type: ignore[arg-type]


def test_a_number_that_came_back_is_another_job() -> None:
    assert job_of((RUNNING,), SlurmCancel("12", 100)) is RUNNING
    assert job_of((RUNNING,), SlurmCancel("12", 101)) is None
    assert job_of((replace(RUNNING, id="12_1"),), SlurmCancel("12", 100)) is None
    assert codes(SlurmCancel("12", 101), None) == ["gone"]
    assert codes(SlurmCancel("12", 100), replace(RUNNING, state="COMPLETED")) == ["gone"]


def test_what_slurm_would_take_without_effect_is_refused() -> None:
    assert codes(SlurmCancel("12", 100), RUNNING) == []
    assert codes(SlurmHold("12", 100), RUNNING) == ["setting"]
    assert codes(SlurmHold("12", 100), WAITING) == []
    assert codes(SlurmHold("12", 100), HELD) == ["setting"]
    assert codes(SlurmRelease("12", 100), WAITING) == ["setting"]
    assert codes(SlurmRelease("12", 100), HELD) == []
    assert codes(SlurmRequeue("12", 100), WAITING) == ["setting"]
    suspended = replace(RUNNING, state="SUSPENDED")
    assert codes(SlurmSuspend("12", 100), RUNNING) == []
    assert codes(SlurmSuspend("12", 100), suspended) == ["setting"]
    assert codes(SlurmContinue("12", 100), suspended) == []
    assert codes(SlurmContinue("12", 100), RUNNING) == ["setting"]
    assert codes(SlurmCancel("12", 100), replace(RUNNING, is_het=True)) == ["setting"]
    assert codes(SlurmDrain("n1"), node=None) == ["gone"]
    assert codes(SlurmDrain("n1"), node=NODE) == []
    assert codes(SlurmResume("n1"), node=NODE) == ["setting"]
    drained = replace(NODE, states=("IDLE", "DRAIN"))
    assert codes(SlurmDrain("n1"), node=drained) == ["setting"]
    assert codes(SlurmResume("n1"), node=drained) == []
    assert codes(SlurmResume("n1"), node=replace(NODE, states=("DOWN",))) == []


def test_without_rights_only_its_own_jobs() -> None:
    for rights in ("own", "unknown"):
        assert codes(SlurmCancel("12", 100), RUNNING, rights=rights) == ["permission"]
        assert codes(SlurmDrain("n1"), node=NODE, rights=rights) == ["permission"]
    assert codes(SlurmCancel("12", 100), RUNNING, rights="own", account="carol") == []
    nobodys = replace(RUNNING, user=None)
    assert codes(SlurmCancel("12", 100), nobodys, rights="own") == ["permission"]


def test_what_cannot_be_asked_is_refused() -> None:
    assert codes(SlurmCancel("12", 100), RUNNING, trouble="no slurmctld") == ["unreadable"]


def test_done_is_what_reads_back() -> None:
    ended_jobs = (None, replace(RUNNING, state="CANCELLED"), replace(RUNNING, state="COMPLETING"))
    assert [_IS_DONE[SlurmCancel](job) for job in (*ended_jobs, RUNNING, WAITING)] == [
        True, True, True, False, False]
    assert [_IS_DONE[SlurmHold](job) for job in (HELD, WAITING, None)] == [True, False, False]
    assert [_IS_DONE[SlurmRelease](job) for job in (HELD, WAITING, None)] == [False, True, False]
    assert [_IS_DONE[SlurmRequeue](job) for job in (
        WAITING, replace(RUNNING, state="COMPLETING"), RUNNING, None,
        replace(RUNNING, state="FAILED"))] == [True, True, False, False, False]
    suspended = replace(RUNNING, state="SUSPENDED")
    assert [_IS_DONE[SlurmSuspend](job) for job in (suspended, RUNNING, None)] == [
        True, False, False]
    assert [_IS_DONE[SlurmContinue](job) for job in (RUNNING, suspended, None)] == [
        True, False, False]


def test_what_is_lost_is_said_before() -> None:
    preview = SlurmPreview("", "slurm", "all", RUNNING)
    assert [*warnings(SlurmCancel("12", 100), preview)] == ["It holds 2 GPUs."]
    unknown = SlurmPreview("", "slurm", "all", replace(RUNNING, gpus=None))
    assert [*warnings(SlurmCancel("12", 100), unknown)] == [
        "How many GPUs it holds is not known."]
    assert "stays on them" in next(iter(warnings(SlurmSuspend("12", 100), preview)))
    assert "cannot release" in next(iter(warnings(
        SlurmHold("12", 100), SlurmPreview("", "slurm", "all", WAITING))))
