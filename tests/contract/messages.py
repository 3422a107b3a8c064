"""Messages of every kind, with every field set: the content of the golden files."""

from dataclasses import replace

import msgspec
from msgspec import structs

from gpudeck.contract.actions import (
    NO_TASK,
    ActionParams,
    ActionVerification,
    Bystander,
    Command,
    CommandActor,
    HeldGpu,
    MetricBound,
    Preview,
    ProcessIdentity,
    Recall,
    Refusal,
    Reply,
    RuleCondition,
    Victim,
)
from gpudeck.contract.collectives import CollectiveRank, CollectiveSample
from gpudeck.contract.desired_state import (
    DesiredState,
    InForce,
    QuotaEnforcement,
    QuotaMechanism,
    SignedDesired,
    desired_statement,
    encode_desired,
)
from gpudeck.contract.hosts import HostSample, HostTask, TaskCheckpoints
from gpudeck.contract.kubernetes import (
    KubernetesDelete,
    KubernetesNode,
    KubernetesNow,
    KubernetesPod,
    PodGpus,
    PodGpusNow,
)
from gpudeck.contract.ladder import LadderRung
from gpudeck.contract.limits import (
    ClockLock,
    ComputeMode,
    GroupMemoryLimit,
    LimitsNow,
    ManagedComputeMode,
    ManagedMigLayout,
    MpsClient,
    MpsDaemon,
    MpsFinding,
    MpsLimit,
    MpsPercent,
    MpsServer,
    MpsStart,
    SettingChange,
    TimedLimit,
)
from gpudeck.contract.pool_link import (
    ClaimStanding,
    LeaseOffer,
    NodeClaim,
    NodeMaintenance,
    OfferedGpu,
    OutsideUse,
    PoolPlan,
    PoolReport,
    ReportedEnd,
    ReportedLease,
    ReservedGpus,
    Withdrawal,
)
from gpudeck.contract.quota import Quota
from gpudeck.contract.repairs import WHOLE_NODE, GpuRepair, RepairsNow
from gpudeck.contract.rungs import RulesCeiling
from gpudeck.contract.serving import ServingSample
from gpudeck.contract.slurm import SlurmDrain, SlurmJob, SlurmNode, SlurmNow, SlurmShare
from gpudeck.contract.wire import (
    Ack,
    Anchor,
    Backfill,
    Beat,
    Call,
    Challenge,
    Clock,
    Cost,
    Echo,
    Enrolment,
    Event,
    Frame,
    FromAgent,
    FromHub,
    GpuFacts,
    GpuLink,
    Hello,
    Ignored,
    Inquire,
    Inventory,
    JournalCopies,
    Look,
    Noted,
    Probe,
    Refused,
    SignedCommand,
    Slow,
    Span,
    Task,
    Tasks,
    Time,
    Use,
    Welcome,
    command_statement,
    encode,
    encode_command,
    enrolment_statement,
    hub_statement,
    node_statement,
    pack,
    preview_statement,
)
from gpudeck.measures.metrics import SLOW_WIDTH, WIDTH, Absence
from gpudeck.pool.core.claims import Claim
from gpudeck.pool.core.wait_estimate import WaitEstimate

FACTS = (
    GpuFacts(
        uuid="GPU-00000000-0000-4000-8000-000000000001", index=0, name="NVIDIA H100 80GB HBM3",
        pci_bus_id="00000000:18:00.0", mem_total_bytes=85520809984.0, power_limit_w=700.0,
        sm_clock_max_mhz=1980.0, mem_clock_max_mhz=2619.0, temp_slowdown_c=87.0,
        temp_shutdown_c=92.0, missing={"fan_pct": "unsupported"}, minor=0, serial="1650923000001",
        vbios="96.00.74.00.01", compute_capability="9.0", numa_node=1, pcie_gen_max=5,
        pcie_width_max=16, power_limit_min_w=200.0, power_limit_max_w=700.0,
        power_limit_default_w=700.0,
    ),
    GpuFacts(
        uuid="MIG-00000000-0000-4000-8000-000000000002", index=1, name="1g.10gb",
        parent_uuid="GPU-00000000-0000-4000-8000-000000000001", missing={"util_pct": "denied"},
        mig_profile="1g.10gb", gpu_instance=9, compute_instance=0,
    ),
)
TASK = Task(
    id="0b1c2d3e-4711-98765", pid=4711, start_ticks=98765, started_at=1763640000.25,
    user="alice", command="python train.py --épochs 3", kind="mps_client",
    manager="slurm job 12", job_id="0b1c2d3e-4700-98000", uid=1000, parent_pid=4700,
    container="3f" * 32, container_name="trainer", pod="trainer-0", namespace="vision",
    slurm_job="12", unit="trainer.service", notebook="work/Untitled.ipynb",
    launch="torchrun 10.0.0.1:29500/run-7", rank=3, groups=("users", "vision"),
)
USES = (
    Use(task_id=TASK.id, gpu=0, mem_used_bytes=1073741824.0, sm_pct=12.5, state="running"),
    Use(task_id=TASK.id, gpu=1, mem_used_bytes=None, sm_pct=None),
)
FRAME = Frame(
    seq=7, taken_at=1763640001.5, interval_s=1.0, generation=3,
    values=pack([float(at) / 4 for at in range(WIDTH)] + [0.0] * WIDTH),
    absent=bytes(WIDTH) + bytes([Absence.LOST]) * WIDTH, states=bytes([0, 2]),
    tasks=Tasks(snapshot=True, began=(TASK,), uses=USES),
    slow=Slow(pack([float(at) / 8 for at in range(SLOW_WIDTH)] + [0.0] * SLOW_WIDTH),
              bytes(SLOW_WIDTH) + bytes([Absence.UNSUPPORTED]) * SLOW_WIDTH),
)

HOST = HostSample(
    {"cpu_pct": 12.5, "mem_used_bytes": 2.0**36, "io_pressure_pct": 0.0},
    {"rdma_rx_bytes_per_s": "unsupported"},
    (HostTask(TASK.id, 350.5, 2.0**33, 1e6, 0.0, 1.0), HostTask("b-2-3", *[None] * 5)),
    (ServingSample(TASK.id, "vllm", "", 1e9, 2e8, 310.5, 99.25, 4.0, 0.0, 12.5, 0.25, 0.015, 3.5),
     ServingSample("b-2-3", "tgi", "it has no /metrics: its metrics are switched off")))

PREVIEW = Preview(
    ask_id="ask-1", nonce=bytes(range(32)), node_id="6f" * 16, boot_id="0b1c2d3e-" + "0" * 27,
    taken_at=1763640002.25, action="end",
    params=ActionParams(grace_s=45.0, checkpoint_signal="USR1", checkpoint_wait_s=120.0,
                        text="why"),
    task_id=TASK.id, job_id=TASK.job_id, owner="alice", age_s=86400.5, kind="compute",
    manager="slurm job 12",
    victims=(Victim(ProcessIdentity(4711, 98765, 1000, "259:1042", "/user.slice", 5413),
                    TASK.command,
                    "alice", TASK.id, (HeldGpu(FACTS[0].uuid, 1073741824.0),)),
             Victim(ProcessIdentity(4712, 98770, 1000, None, None, None), None, None)),
    bystanders=(Bystander(ProcessIdentity(5000, 90000, 1001, "259:1043", "/user.slice", None),
                          "0b1c2d3e-5000-90000", "bob", "python serve.py",
                          (HeldGpu(FACTS[0].uuid, None),)),),
    refusals=(Refusal("managed", "Slurm runs it; use scancel 12"),),
    warnings=("the optimiser's state since the last checkpoint is lost",),
    key=bytes(range(64, 96)), signature=bytes(range(64)),
)
COMMAND = Command(
    command_id="0192f0c1-2d3e-7abc-8def-0123456789ab", node_id="6f" * 16, epoch=4,
    issued_at=1763640003.0, expires_at=1763640033.0, nonce=bytes(range(32)), action="end",
    asker=CommandActor("person", "carol", "dave"), reason="idle since Monday", preview=PREVIEW,
)
RULES_COMMAND = msgspec.structs.replace(
    COMMAND, asker=CommandActor("rule", "idle-hog@1a2b3c4d"), condition=RuleCondition(
        (MetricBound("sm_pct", "<=", 1.0), MetricBound("mem_used_bytes", ">=", 1073741824.0)),
        "Idle with memory held: sm_pct <= 1 for 2h, and mem_used_bytes >= 1GiB"))
REPLY = Reply(
    command_id=COMMAND.command_id, number=3, state="not_effective", at=1763640064.5,
    step="the memory did not come back",
    verified=ActionVerification(True, False, None, 1073741824.0, 1073741824.0,
                                ("0b1c2d3e-5000-90000",),
                                (4712,)),
    audit_seq=17, audit_head="ab" * 32,
)
DESIRED = DesiredState(
    node_id="6f" * 16, epoch=4, generation=12, issued_at=1763640000.5, group="vision",
    quotas=(Quota(
        id="alice-at-night", subject="user:alice", scope="node:node-01", gpus=2,
        mem_bytes=42949672960, gpu_hours=40.5, per="week", max_age_s=43200.0, count="together",
        priority=4, mode="act",
        ladder=(LadderRung("tell"), LadderRung("pause", 60.0), LadderRung("end", 600.0)),
        offline="allow", because="shared"), Quota(id="everyone", subject="*")),
)
FROM_AGENT: dict[str, FromAgent] = {
    "call": Call(nonce=bytes(range(32))),
    "hello_the_first_time": Hello(
        wire_versions=(1,), key=bytes(range(64, 96)), signature=bytes(range(64)),
        node_id="6f" * 16, host="node-01", boot_id="0b1c2d3e-" + "0" * 27,
        stream="a1b2c3d4e5f60718", last_seq=0, agent_version="0.1.0", backend="nvml",
        enrolment=Enrolment(token_id="0123456789abcdef", signature=bytes(range(128, 192))),
    ),
    "hello": Hello(
        wire_versions=(1,), key=bytes(range(64, 96)), signature=bytes(range(64)),
        node_id="6f" * 16, host="node-01", boot_id="0b1c2d3e-" + "0" * 27,
        stream="a1b2c3d4e5f60718", last_seq=6, agent_version="0.1.0", backend="nvml",
        platform="Linux-6.1-x86_64", driver_version="550.54.15", epoch_seen=3,
        actions=("notify", "end"), anchor_seq=99, anchor_head="cd" * 32,
    ),
    "hello_that_says_what_rules_may": Hello(
        wire_versions=(1,), key=bytes(range(64, 96)), signature=bytes(range(64)),
        node_id="6f" * 16, host="node-01", boot_id="0b1c2d3e-" + "0" * 27,
        stream="a1b2c3d4e5f60718", last_seq=6, agent_version="0.1.0", backend="nvml",
        actions=("notify", "end"), rules=RulesCeiling(may_act=True, may_hit_managed=False),
    ),
    "hello_that_says_cuda": Hello(
        wire_versions=(1,), key=bytes(range(64, 96)), signature=bytes(range(64)),
        node_id="6f" * 16, host="node-01", boot_id="0b1c2d3e-" + "0" * 27,
        stream="a1b2c3d4e5f60718", last_seq=6, agent_version="0.1.0", backend="nvml",
        driver_version="550.54.15", cuda_version="12.4",
    ),
    "inventory": Inventory(generation=3, gpus=FACTS, links=(GpuLink(0, 1, "numa node", 18),)),
    "frame": FRAME,
    "frame_with_host": structs.replace(FRAME, seq=8, host=HOST),
    "frame_unchanged_tasks": Frame(
        seq=2**53, taken_at=1763640002.5, interval_s=0.5, generation=3, values=b"", absent=b"",
        states=b"",
    ),
    "event": Event(
        seq=8, taken_at=1763640002.0, kind="gpu_lost", gpu_uuid=FACTS[0].uuid, task_id=TASK.id,
        text="Xid 79", numbers={"xid": 79.0},
    ),
    "backfill": Backfill(messages=(encode(FRAME), encode(Event(8, 1763640002.0, "node_began")))),
    "beat": Beat(
        reader="hung", reading_age_s=6.25, pending=12, dropped=3, detail="see dmesg",
        holds=("the hub, by carol: driver update", "the file /run/gpudeck/hold"), audit_seq=17,
        audit_head="ab" * 32, cost=Cost(0.75, 41e6, 0.0125, 4096.0), first_seq=7,
    ),
    "beat_in_memory": Beat(reader="ok", reading_age_s=0.5, pending=3, dropped=0, detail="full",
                           is_in_memory=True),
    "beat_with_copies": Beat(reader="ok", reading_age_s=0.5, pending=3, dropped=0,
                             copies=JournalCopies(2, 1763640000.5, 43_200.0)),
    "beat_before_any_reading": Beat(reader="starting", reading_age_s=None, pending=0, dropped=0),
    "echo": Echo(probe_id=99, agent_at=1763640003.125),
    "clock": Clock(clock_id=12),
    "preview": PREVIEW,
    "reply": REPLY,
    "reply_refused": Reply(
        command_id=COMMAND.command_id, number=1, state="refused", at=1763640004.0,
        refusal=Refusal("identity", "process 4711 is another one now"),
    ),
    "in_force": InForce(
        generation=12, issued_at=1763640000.5, looked_at=1763640010.25,
        quotas=(QuotaEnforcement("alice-at-night", True, "ladder", "3 tasks seen",
                                 ("alice holds 3 Gpus",)),
                QuotaEnforcement("everyone", False, "none", "rules may not act here")),
        mechanisms=(QuotaMechanism("memory_limit", "not_there",
                                   "driver 550.54.15 is older than 615"),),
        trouble="the last one was not signed by this hub",
    ),
}
CLAIM = Claim(
    id="5f0c2a7b9d1e4433", owner="alice", gpus=2, submitted_at=1763640000.0,
    mem_bytes=40 * 2**30, cpu_milli=16_000, ram_bytes=64 * 2**30, models=("h100",), hosts=("n1",),
    term_s=7200.0, priority=3,
    is_preemptible=True, shape="python train.py", is_suspendable=True)
FROM_AGENT["pool"] = PoolReport(
    (OfferedGpu("GPU-1", "NVIDIA H100 80GB HBM3", 1, False, 0, 2, 85e9),
     OfferedGpu("GPU-2", "NVIDIA H100 80GB HBM3", 2, trouble="the driver has lost it")),
    (NodeClaim(CLAIM, True, limits_itself=True),),
    (ReportedLease(CLAIM, ("GPU-1",), "active", 1763640001.0, 1763647201.0, 1763640060.0,
                   (TASK.id,), ("GPU-2",), True, "0-15", ("cpus", "ram")),),
    (ReportedEnd(CLAIM, ("GPU-1",), 1763640001.0, 1763640090.5, "released", "given back", 7),),
    {"0123456789abcdef": "GPU 1 is leased"},
    (OutsideUse("GPU-1", "5f0c2a7b-4712-99", 4712, "bob"),), cpus=128,
    no_end="the ceiling of this node does not permit 'end'",
    ram_bytes=256 * 2**30)
FROM_AGENT["preview_of_a_setting"] = msgspec.structs.replace(
    PREVIEW, action="set_mps", params=ActionParams(setting=MpsPercent("/run/mps", 50, 4321)),
    victims=(), task_id=NO_TASK,
    changes=(SettingChange("share of the threads, server 4321", "100 %",
                                                        "50 %"),))
FROM_AGENT["limits_now"] = LimitsNow(
    taken_at=1763640005.0,
    daemons=(MpsDaemon(
        "/run/mps", 0, "root", True, "", 100.0, 0, (MpsLimit(0, "2G"),),
        (MpsServer(4321, 1000, "carol", "ACTIVE", 50.0, (MpsLimit(1, "900M"),),
                   (MpsClient(4322, 1000, "carol", "python train.py", TASK.id, 100.0),)),)),),
    leases=(TimedLimit("c-1", "GPU-1", "power", (300.0,), (700.0,), "ada", "the room is hot",
                       1763640000.0, 1763643600.0, "boot-1", 7200.5, "in_force", 300.0,
                       1763640004.0,
                       "the driver says 300 W"),),
    limits_trouble="none",
    findings=(MpsFinding("exclusive", "advice", "Gpu GPU-1 is not exclusive", "set the mode",
                         (ComputeMode("GPU-1", "exclusive_process"),)),
              MpsFinding("dead", "fault", "no daemon answers", "start it",
                         (MpsStart("/run/mps"),))),
    modes=(ManagedComputeMode("GPU-1", "exclusive_process", "ada", "MPS alone", 1763640000.0,
                              "in_force",
                              "the driver says exclusive"),),
    layouts=(ManagedMigLayout("GPU-1", "1x 3g.40gb", ((9, 4),), "none", "ada", "two users",
                              1763640000.0, "in_force", "the driver says 1x 3g.40gb"),),
    unread="1 of the power caps and clock locks on this node's disk cannot be understood")
FROM_AGENT["repairs_now"] = RepairsNow(
    1763640005.0,
    (GpuRepair("GPU-1", "draining", "ada", "fan noise", 1763640000.0, 1763640001.0, "boot-1",
               1763643600.0, "2 tasks left"),
     GpuRepair(WHOLE_NODE, "cordoned", "rule xid-79", "", 1763640000.0, 1763640000.0, "boot-1")),
    "the journal is full")
FROM_AGENT["kubernetes_now"] = KubernetesNow(
    1_700_000_000.5, server="https://10.0.0.1:6443", version="v1.31.2", left_out=1, pods=(
        KubernetesPod("0c7a…", "research", "train-0", "Running", 2, node="gpu01",
                      controller="Job/train", started_at=1_700_000_000.0),
        KubernetesPod("1d8b…", "research", "train-1", "Pending", None, reason="Unschedulable")),
    nodes=(KubernetesNode("gpu01", 8, 2, is_cordoned=True),), rights=("evict",))
FROM_AGENT["pod_gpus_now"] = PodGpusNow(
    1763640005.0, pods=(PodGpus("research", "train-0", ("GPU-1", "MIG-2")),))
FROM_AGENT["slurm_now"] = SlurmNow(
    1763640005.0, "", "tests", "24.11.5", "slurm", "all", "PrivateData hides jobs",
    (SlurmJob(12, "12", "RUNNING", 1763640000.0, "carol", "train", "", "main", 1763640001.0,
              3_600.0, 2, (SlurmShare("gpu01", 2), SlurmShare("gpu02", None))),
     SlurmJob(13, "13_[1-3]", "PENDING", 1763640002.0, reason="JobHeldUser", is_het=True)),
    (SlurmNode("gpu01", "gpu01", ("MIXED", "DRAIN"), 8, 2, "main,debug", "fans"),), 3)
FROM_HUB: dict[str, FromHub] = {
    "challenge": Challenge(
        nonce=bytes(range(32, 64)), hub_id="hub-1", hub_key=bytes(range(96, 128)), epoch=4,
        signature=bytes(range(192, 256)),
    ),
    "welcome": Welcome(wire_version=1, hub_id="hub-1", epoch=4, hub_at=1763640000.0, acked_seq=6),
    "ignored": Ignored(what="power_curve"),
    "refused": Refused(reason="too many agents at once", retry_after_s=12.5),
    "welcome_after_an_outage": Welcome(wire_version=1, hub_id="hub-1", epoch=4,
                                       hub_at=1763640000.0, acked_seq=6, spans=(Span(9, 12),)),
    "welcome_of_an_archive": Welcome(wire_version=1, hub_id="hub-1", epoch=4,
                                     hub_at=1763640000.0, acked_seq=6, archived=(Span(1, 3),)),
    "ack": Ack(seq=7),
    "ack_of_an_archive": Ack(seq=7, archived=(Span(1, 3), Span(5, 6))),
    "ack_with_a_gap": Ack(seq=7, spans=(Span(9, 12), Span(20, 20))),
    "probe": Probe(probe_id=99, hub_at=1763640003.0),
    "time": Time(clock_id=12, hub_at=1763640003.5),
    "look": Look(ask_id="ask-1", nonce=bytes(range(32)), action="end", params=PREVIEW.params,
                 task_id=TASK.id),
    "look_at_a_setting": Look(
        ask_id="ask-2", nonce=bytes(range(32)), action="lock_clocks", task_id=NO_TASK,
        params=ActionParams(setting=ClockLock("GPU-1", 210, 1410, 3600.0))),
    "look_at_slurm": Look(
        ask_id="ask-3", nonce=bytes(range(32)), action="slurm_drain", task_id=NO_TASK,
        params=ActionParams(setting=SlurmDrain("gpu01"))),
    "look_at_kubernetes": Look(
        ask_id="ask-4", nonce=bytes(range(32)), action="kubernetes_delete", task_id=NO_TASK,
        params=ActionParams(setting=KubernetesDelete("research", "train-0", "0c7a", 60))),
    "look_for_a_rule": Look(ask_id="ask-1", nonce=bytes(range(32)), action="end",
                            params=PREVIEW.params, task_id=TASK.id, asker="rule"),
    "recall": Recall(command_id=COMMAND.command_id, why="silenced by carol"),
    "command_of_a_rule": SignedCommand(body=encode_command(RULES_COMMAND),
                                       signature=bytes(range(64))),
    "command": SignedCommand(body=encode_command(COMMAND), signature=bytes(range(64))),
    "inquire": Inquire(command_ids=(COMMAND.command_id,)),
    "noted": Noted(command_id=COMMAND.command_id, number=3),
    "anchor": Anchor(audit_seq=99, audit_head="cd" * 32),
    "desired": SignedDesired(body=encode_desired(DESIRED), signature=bytes(range(64))),
}

_CALL, _CHALLENGE, _HELLO = FROM_AGENT["call"], FROM_HUB["challenge"], FROM_AGENT["hello"]
assert isinstance(_CALL, Call)
assert isinstance(_CHALLENGE, Challenge)
assert isinstance(_HELLO, Hello)
# What is signed, of these messages.
STATEMENTS = {
    "statement_of_hub": hub_statement(_CALL, _CHALLENGE),
    "statement_of_node": node_statement(_CHALLENGE, _HELLO),
    "statement_of_enrolment": enrolment_statement(_CHALLENGE, _HELLO),
    "statement_of_preview": preview_statement(PREVIEW),
    "statement_of_command": command_statement(encode_command(COMMAND)),
    "statement_of_desired": desired_statement(encode_desired(DESIRED)),
}
FROM_HUB["pool_plan"] = PoolPlan(
    (LeaseOffer("5f0c2a7b9d1e4433", ("GPU-1", "GPU-2")), LeaseOffer("fedc", ("GPU-3",), CLAIM)),
    (ClaimStanding("0123456789abcdef", 3, "it asks for 2 GPUs; 1 of 4 that suit it are free",
                   2400.0, WaitEstimate(600.0, 1200.0, 1800.0, 12), ("n2", "n3")),),
    {"aaaa": "given back by carol"}, {"cccc": "alice has asked for 2 GPUs"},
    {"dddd": 1763650000.0}, {"bbbb": 1763654401.0})

# Fields that came later, in messages that hubs and agents of before read without them.
FROM_AGENT |= {
    "hello_that_permits_many": Hello(
        wire_versions=(1,), key=bytes(range(64, 96)), signature=bytes(range(64)),
        node_id="6f" * 16, host="node-01", boot_id="0b1c2d3e-" + "0" * 27,
        stream="a1b2c3d4e5f60718", last_seq=6, agent_version="0.1.0", backend="nvml",
        actions=("notify", "end"), more_actions=("suspend", "restore"),
    ),
    "inventory_with_memory_limits": Inventory(4, (structs.replace(
        FACTS[0], mem_temp_max_c=95.0, mem_margin_min_c=8.0, accounting_on=True),)),
    "inventory_of_two_vendors": Inventory(5, (
        structs.replace(FACTS[0], driver_version="575.57.08"),
        GpuFacts("GPU-946d7e1ef9b172dd", 1, "AMD Radeon RX 6900 XT",
                 driver_version="Linux 6.8.0"))),
    "frame_with_a_suspended_task": structs.replace(
        FRAME, seq=10, tasks=Tasks(True, (TASK,), USES, suspended=(TASK.id,))),
    "frame_with_checkpoints": structs.replace(FRAME, seq=9, host=structs.replace(
        HOST, checkpoints=(TaskCheckpoints(TASK.id, 900.5, 1763640000.0, 4),))),
    "frame_with_collectives": structs.replace(FRAME, seq=10, host=structs.replace(
        HOST, collectives=(
            CollectiveSample(TASK.id, "", "0xae94423cfbb2ef4a", 16, 90.5, 15, 6_649, 6_650, (
                CollectiveRank(3, "10.0.0.5", 4_711, 3),), 1, (
                CollectiveRank(5, "unknown", None, None),), 1, True),
            CollectiveSample("b-2-3", "it listens elsewhere")))),
    "preview_that_waits_for_a_checkpoint": structs.replace(
        PREVIEW, params=ActionParams(grace_s=45.0, checkpoint_within_s=1_800.0)),
    "reply_after_a_checkpoint": structs.replace(REPLY, number=4, verified=ActionVerification(
        True, True, bystanders_alive=True, applied=True, in_force=True,
        checkpoint_at=1763640900.0)),
    "limits_with_trouble": LimitsNow(
        1763640006.0, mps_trouble="no control program answers",
        daemons=(MpsDaemon("/run/mps", 0, "root", False, "its pipe folder is gone"),)),
    "slurm_without_an_answer": SlurmNow(1763640007.0, "slurmctld does not answer"),
    "kubernetes_that_is_leaving": KubernetesNow(
        1763640008.0, "nodes may not be listed", pods=(KubernetesPod(
            "2e9c", "vision", "serve-0", "Running", 1, is_shared=True, is_leaving=True,
            is_mirror=True),),
        nodes=(KubernetesNode("gpu02", 4, is_ready=False),)),
    "pod_gpus_without_a_kubelet": PodGpusNow(1763640008.0, "no such socket"),
    "pool_of_instances": PoolReport(
        (OfferedGpu("MIG-1", "1g.10gb", 1, is_mig=True),), (), (),
        withdrawals=(Withdrawal("5f0c2a7b9d1e4433", "alice"), Withdrawal("aaaa", None)),
        groups={"alice": ("users", "vision")}),
    "limits_where_no_task_is_suspended": LimitsNow(
        1763640000.0, suspend_trouble="cuda-checkpoint is not installed here"),
    "limits_of_control_groups": LimitsNow(1763640000.0, memory=(
        GroupMemoryLimit("GPU-1", "/user.slice/user-1000.slice", "4294967301", 12884901888.0,
                         "quota everyone of ada", "b00t", 1763630000.0, 12884901888.0, "in_force",
                         "the driver reports 12.0 GiB"),)),
    "limits_of_an_mps_share": LimitsNow(1763640000.0, leases=(TimedLimit(
        "c-2", "GPU-1", "mps_share", (50.0,), (100.0,), "hog@1", "it hogs the GPU", 1763640000.0,
        1763643600.0, "boot-1", 7200.5, "in_force", 50.0, 1763640004.0,
        "MPS gives next clients 50 %", pipes="/tmp/nvidia-mps", server=4712),)),
    "pool_with_suspended_work": PoolReport(
        (), (NodeClaim(replace(CLAIM, home_gpus=("GPU-1", "GPU-2"), hosts=(), is_again=True), False,
                       limits_itself=False),), ()),
    "pool_of_a_managed_node": PoolReport(
        (OfferedGpu("GPU-1", "NVIDIA H100 80GB HBM3", 0, trouble="managed by Slurm",
                    reason="managed"),), (NodeClaim(CLAIM, True, "it is stopped"),), (),
        managed_by="Slurm"),
}
FROM_HUB["pool_plan_over_several_nodes"] = PoolPlan(
    (LeaseOffer("fedc", ("GPU-3",), CLAIM, ("n1", "n2")),),
    (ClaimStanding("0123456789abcdef", 1, "it begins at 18:00", kept=("GPU-1",)),
     ClaimStanding("0123456789abcdf0", 2, "it begins at 19:00", never="n2 has left")),
    withdrawn={"5f0c2a7b9d1e4433": ""}, grace_s=90.0,
    maintenance=NodeMaintenance("this node is in maintenance by ada: new fans", 1763650000.0),
    reserved=(ReservedGpus("fedd", "bob", ("GPU-4",), 1763640000.0, 1763647200.0),))
