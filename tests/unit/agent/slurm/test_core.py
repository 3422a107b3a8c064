import json
import random
from typing import Any

import pytest

from agent.slurm.core import (
    REPORT_BYTES,
    SlurmTextError,
    config_of,
    gpus_in,
    hosts_of,
    jobs_of,
    nodes_of,
    number_of,
    report,
    slurm_uid,
)
from gpudeck.contract.slurm import MAX_JOBS, SlurmJob, SlurmNow
from gpudeck.contract.wire import MAX_MESSAGE_BYTES, decode_from_agent, encode

NOW = SlurmNow(1.0, cluster="c", account="slurm")
NODE = ("NodeName=gpu01 Arch=x86_64 CPUTot=16 Gres=gpu:h100:8 GresDrain=N/A "
        "GresUsed=gpu:h100:3(IDX:0-1,5) NodeAddr=127.0.0.1 NodeHostName=vm OS=Linux 6.1 #1 SMP "
        "State=MIXED+DRAIN*+DYNAMIC_NORM Partitions=main,debug BootTime=2026-11-27T07:51:20 "
        "Reason=fans State=IDLE [loud] [root@2026-11-27T14:19:36]")


def a_job(**keys: Any) -> dict[str, Any]:
    return {"job_id": 12, "job_state": ["RUNNING"], "submit_time": 100, "nodes": "gpu[01-02]",
            "user_name": "carol", "name": "train", "partition": "main", "state_reason": "None",
            "gres_detail": ["gpu:h100:2(IDX:0-1)", "gpu:h100:1(IDX:7)"], "node_count": 2,
            "tres_per_node": "gres/gpu:2", "unknown_to_us": [1], **keys}


def read(**keys: Any) -> SlurmJob:
    [job] = jobs_of(json.dumps({"jobs": [a_job(**keys)], "meta": {}}).encode())
    return job


@pytest.mark.parametrize(("field", "number"), [
    (7, 7), (None, None), ({"set": True, "infinite": False, "number": 7}, 7), (True, None),
    ({"set": True, "infinite": True, "number": 0}, None), ("7", None), (-1, None),
    ({"set": False, "infinite": False, "number": 0}, None), (10**18, None)])
def test_numbers_of_each_version(field: Any, number: int | None) -> None:
    assert number_of(field) == number


def wrapped(number: int | None) -> dict[str, Any]:
    return {"set": number is not None, "infinite": False, "number": number or 0}


def test_the_same_job_as_each_version_writes_it() -> None:
    old = read(job_state="RUNNING", start_time=101, time_limit=10, array_job_id=0, het_job_id=0)
    new = read(submit_time=wrapped(100), start_time=wrapped(101), time_limit=wrapped(10),
               array_job_id=wrapped(0), node_count=wrapped(2), het_job_id=wrapped(0),
               job_resources={"nodes": {"count": 2}})
    assert old == new
    assert (old.id, old.gpus, old.limit_s, old.started_at) == ("12", 3, 600.0, 101.0)
    assert [(share.node, share.gpus) for share in old.nodes] == [("gpu01", 2), ("gpu02", 1)]


def test_a_job_is_called_as_scancel_takes_it() -> None:
    assert read(array_job_id=3, array_task_id=0).id == "3_0", "the number alone is all of them"
    assert read(array_job_id=wrapped(3), array_task_id=wrapped(None),
                array_task_string="4-9,11%2").id == "3_[4-9,11]"
    assert read(array_job_id=3, array_task_string="1-9,...").id == "3_[...]", "cut short by Slurm"
    assert read(het_job_id=wrapped(12)).is_het


def test_what_waits_holds_nothing() -> None:
    job = read(job_state=["PENDING"], gres_detail=[], nodes="", start_time=999,
               state_reason="JobHeldUser")
    assert (job.gpus, job.nodes, job.started_at, job.is_held) == (4, (), None, True)
    assert read(job_state="PENDING", gres_detail=[], tres_per_node="", tres_per_job="").gpus == 0
    assert read(job_state="PENDING", gres_detail=[], node_count=None).gpus is None


def test_what_is_not_said_is_not_known() -> None:
    assert read(gres_detail=[]).gpus is None, "it asked for two, and Slurm does not say which"
    assert read(gres_detail=["gpu:2"]).nodes[1].gpus is None, "one count for two nodes"
    assert read(job_state=["CANCELLED", "COMPLETING"]).state == "COMPLETING"


def test_a_name_is_its_users_and_breaks_nothing() -> None:
    evil = 'x"}]\n\u202eJobId=1 JobState=COMPLETED' + "y" * 9_000
    job = read(name=evil)
    assert (job.state, job.name.isprintable(), len(job.name)) == ("RUNNING", True, 256)
    text = json.dumps({"jobs": [a_job(name="@"), a_job(job_id=13)]}).encode()
    assert len(jobs_of(text.replace(b'"@"', b'"\xff\xfe"'))) == 2, "bytes that are no text"


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"jobs": [{}]}', b"\xff", b"[" * 100_000,
                                  b'{"jobs": 3}', b'{"jobs": [{"job_id": "x"}]}'])
def test_what_is_not_understood_is_said(text: bytes) -> None:
    with pytest.raises(SlurmTextError):
        jobs_of(text)


@pytest.mark.parametrize(("gres", "gpus"), [
    ("gpu:h100:8(S:0-1)", 8), ("gpu:8", 8), ("gpu:a:1(IDX:0),gpu:b:2(IDX:1,3)", 3),
    ("gres:gpu:2", 2), ("gres/gpu:h100:2", 2), ("gres/gpu=4", 4), ("shard:4", None), ("", None),
    ("(null)", None), ("gpu:h100:0(IDX:N/A)", 0), ("nic:2,gpu:1", 1), ("notgpu_x:3", None)])
def test_gpus_of_a_gres(gres: str, gpus: int | None) -> None:
    assert gpus_in(gres) == gpus


def test_lists_of_nodes() -> None:
    assert hosts_of("gpu[01-03,7]-ib,login") == (
        "gpu01-ib", "gpu02-ib", "gpu03-ib", "gpu7-ib", "login")
    assert hosts_of("r[1-2]n[1-2]") == ("r1n1", "r1n2", "r2n1", "r2n2")
    assert hosts_of("") == ()
    names = [f"n{at:04}" for at in range(random.randrange(2, 4_000))]
    assert hosts_of(f"n[0000-{names[-1][1:]}]") == (*names,)


@pytest.mark.parametrize("listed", ["n[1-99999999]", "n[1-64]m[1-64]k[1-64]", "n[1", "n[a-b]",
                                    "n[1-]"])
def test_a_list_of_too_many_or_of_nothing_known_is_refused(listed: str) -> None:
    with pytest.raises(SlurmTextError):
        hosts_of(listed)


def test_nodes_are_read_by_what_slurm_writes_first() -> None:
    [node] = nodes_of(NODE + "\n")
    assert (node.name, node.host, node.gpus, node.allocated) == ("gpu01", "vm", 8, 3)
    assert node.states == ("MIXED", "DRAIN", "NOT_RESPONDING", "DYNAMIC_NORM")
    assert (node.partitions, node.reason) == ("main,debug", "fans State=IDLE [loud]")
    assert nodes_of("No nodes in the system\n") == ()


def test_whose_slurm_it_is() -> None:
    config = config_of("Configuration data as of x\nSlurmUser               = slurm(64030)\n"
                       "PrivateData = jobs,usage\n")
    assert slurm_uid(config) == 64_030
    assert slurm_uid({}) is None
    assert config["PrivateData"] == "jobs,usage"


def test_a_report_fits_its_message_and_says_what_it_leaves_out() -> None:
    jobs = [SlurmJob(at, str(at), "PENDING" if at % 2 else "RUNNING", float(at), "u" * 128,
                     "x" * 256, "r" * 256, "p" * 128, gpus=1) for at in range(MAX_JOBS + 500)]
    message = report([*jobs, SlurmJob(9, "9", "RUNNING", 1.0, gpus=0)], (), NOW)
    assert message.left_out == len(jobs) - len(message.jobs) > 0
    assert len(encode(message)) <= REPORT_BYTES < MAX_MESSAGE_BYTES
    assert {job.state for job in message.jobs} == {"RUNNING"}, "what holds GPUs goes first"
    assert decode_from_agent(encode(message)) == message


def test_what_the_hub_would_refuse_is_not_sent() -> None:
    with pytest.raises(SlurmTextError):
        report([SlurmJob(1, "1", "", 1.0, gpus=1)], (), NOW)
