"""A hostile program with the valid key of one node, in its own process: `python -m tests.thief PORT
SECONDS PREY`. It speaks the wire protocol, tries all it can think of, within the rate that a node
has and far beyond it, and comes back as soon as it is let in. At its end it prints what it did.
"""

import json
import os
import random
import secrets
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import websocket

from dashboard.fleet.node_budget import NEW_USES
from gpudeck.contract.actions import ActionParams, Preview, Reply
from gpudeck.contract.desired_state import InForce
from gpudeck.contract.limits import LimitsNow
from gpudeck.contract.pool_link import (
    NodeClaim,
    OfferedGpu,
    OutsideUse,
    PoolReport,
    ReportedEnd,
    ReportedLease,
    Withdrawal,
)
from gpudeck.contract.wire import (
    EVENT,
    MAX_GPUS,
    MAX_MESSAGE_BYTES,
    NAMESPACE,
    Backfill,
    Beat,
    Clock,
    Echo,
    Event,
    Frame,
    FromAgent,
    GpuFacts,
    Inventory,
    Refused,
    Task,
    Tasks,
    Use,
    Welcome,
    decode_from_hub,
    encode,
    pack,
    preview_statement,
)
from gpudeck.measures.events import KINDS
from gpudeck.measures.metrics import WIDTH
from gpudeck.pool.core.claims import Claim
from tests.integration.hubs import Caller, RawSocket, greet
from tests.swarm import HubAddress

NAME = "thief"
GPUS = 64
PER_S = 19.0  # a node may say 20 a second
WITHIN_S = 12.0  # so long it stays within its rate before it tries what is beyond; first longer
PATIENCE = 0.25  # of its time
INVENTED = 100  # tasks in a frame
KNOCK_EVERY_S = 0.05
SILENT = 100  # sockets that say nothing
GONE = (OSError, websocket.WebSocketException, AssertionError, msgspec.DecodeError)


@dataclass(frozen=True)
class Prey:
    """Facts that the thief knows of an honest node."""

    node: str
    host: str
    boot: str
    task: str
    user: str
    leases: tuple[str, ...] = ()  # ids of claims and leases that are not its own
    gpus: tuple[str, ...] = ()  # its UUIDs


class Thief:
    def __init__(self, port: int, prey: Prey) -> None:
        self.hub, self.prey = HubAddress(port), prey
        self.raw: RawSocket | None = None
        self.did: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.seq = self.generation = 0
        self.may_connect_at = 0.0
        self.facts = tuple(GpuFacts(f"GPU-{NAME}-{at}", at, "NVIDIA H100") for at in range(GPUS))
        self.silent: list[socket.socket] = []
        self.stolen_ids = prey.leases
        self.within = (self.invented, self.claims, self.flaps, self.event, self.inventory,
                       self.reply, self.preview, self.in_force, self.limits, self.beat,
                       self.old_past, self.future, self.pool_claims, self.pool_leases,
                       self.pool_ends, self.pool_words)
        self.invented_left = NEW_USES[0][1] // 2
        self.beyond: tuple[Callable[[], None], ...] = (
            self.pools, self.flood, self.names, self.tasks, self.owners, self.huge, self.bytes,
            self.backfills, self.ahead, self.garbage, self.reconnects)

    # -- its connection

    def connect(self) -> bool:
        """Connect with any lie it likes: the host and the boot of its prey, any stream or past."""
        self.disconnect()
        lies = {"host": random.choice((NAME, self.prey.host)), "boot_id": self.prey.boot,
                "stream": secrets.token_hex(8), "last_seq": random.choice((0, 10**6)),
                "epoch_seen": random.choice((0, 1))}
        try:
            self.raw = RawSocket(self.hub, NAMESPACE)  # type: ignore[arg-type]
            answer = greet(self.raw, Caller(NAME, **lies))
        except GONE:
            self.disconnect()
            return False
        if isinstance(answer, Welcome):
            self.did["came in"] += 1
            self.seq = self.generation = 0
            self.send(self.inventory())
            return True
        self.note_refusal(answer)
        return False

    def disconnect(self) -> None:
        if self.raw is not None:
            self.raw.close()
        self.raw = None
        self.hub.peers.clear()

    def note_refusal(self, message: object) -> None:
        if isinstance(message, Refused):
            self.refusals[message.reason] += 1
            self.may_connect_at = time.monotonic() + message.retry_after_s

    def send(self, message: FromAgent) -> None:
        self.send_bytes(encode(message))

    def send_bytes(self, payload: bytes) -> None:
        if self.raw is None:
            return
        try:
            self.raw.emit(EVENT, payload)
        except GONE:
            self.receive(0.5)
            self.disconnect()

    def receive(self, within_s: float = 0.001) -> None:
        """Read what comes, so that the hub does not close the connection for unread data."""
        try:
            while self.raw is not None:
                packet = self.raw.receive(within_s)
                if packet is None:
                    self.disconnect()
                elif packet["type"] == 2:
                    self.note_refusal(decode_from_hub(packet["data"][1]))
        except websocket.WebSocketTimeoutException:
            pass
        except GONE:
            self.disconnect()

    # -- within its rate

    def frame(self, tasks: Tasks | None, states: bytes = bytes(GPUS), taken_at: float | None = None
              ) -> Frame:
        self.seq += 1
        values = [random.choice((0.0, 100.0, random.uniform(-1e9, 1e12)))] * (GPUS * WIDTH)
        return Frame(self.seq, time.time() if taken_at is None else taken_at, 1.0, self.generation,
                     pack(values), bytes(GPUS * WIDTH), states, tasks)

    def task(self, task_id: str, user: str) -> Task:
        return Task(task_id, random.randint(2, 10**6), 7, 1.0, user,
                    "python " + secrets.token_hex(200), job_id=task_id, uid=0)

    def invented(self) -> Frame:
        ids = [f"{self.prey.boot}-{secrets.token_hex(4)}-7" for _ in range(INVENTED)]
        users = (self.prey.user, "root", *(f"made-up-{at}" for at in range(20)))
        return self.frame(Tasks(
            True, tuple(self.task(task_id, random.choice(users)) for task_id in ids),
            tuple(Use(task_id, at % GPUS, 8e10, 100.0, "running")
                  for at, task_id in enumerate(ids))))

    def claims(self) -> Frame:
        """The prey's own task, on all GPUs: as another user's, and so that a quota is exceeded."""
        user = random.choice((self.prey.user, "mallory"))
        return self.frame(Tasks(True, (self.task(self.prey.task, user),), tuple(
            Use(self.prey.task, at, 8e10, 0.0, "running") for at in range(GPUS))))

    def flaps(self) -> Frame:
        return self.frame(None, bytes(random.randrange(4) for _ in range(GPUS)))

    def event(self) -> Event:
        self.seq += 1
        return Event(self.seq, random.choice((0.0, time.time(), time.time() + 1e9)),
                     random.choice((*KINDS, secrets.token_hex(8))), random.choice(self.facts).uuid,
                     self.prey.task, "x" * 900, {"xid": 79.0, "count": 1.0})

    def inventory(self) -> Inventory:
        self.generation += 1
        return Inventory(self.generation, self.facts)

    def reply(self) -> Reply:
        return Reply(secrets.token_hex(16), 2**40, "done", time.time())

    def preview(self) -> Preview:
        key = Caller(NAME).key
        unsigned = Preview(secrets.token_hex(16), secrets.token_bytes(32), self.prey.node,
                           self.prey.boot, time.time(), "end", ActionParams(), self.prey.task, None,
                           "root", 1.0, None, None, (), (), key=key.public)
        return msgspec.structs.replace(unsigned, signature=key.sign(preview_statement(unsigned)))

    def in_force(self) -> InForce:
        return InForce(2**40, time.time(), time.time(), trouble="x" * 900)

    def limits(self) -> LimitsNow:
        return LimitsNow(time.time(), mps_trouble="x" * 900, limits_trouble="x" * 900)

    def beat(self) -> FromAgent:
        return random.choice((
            Beat("hung", 1e9, 2**40, 2**40, "x" * 900, ("y" * 900,) * 8, first_seq=self.seq),
            Clock(1), Echo(random.randrange(100), 1e12)))

    def old_past(self) -> Backfill:
        return Backfill(tuple(encode(self.frame(None, taken_at=time.time() - random.uniform(
            60.0, 60 * 86_400.0))) for _ in range(4)))

    def future(self) -> Frame:
        return self.frame(None, taken_at=time.time() + random.choice((10.0, 1e6, 1e9)))

    # -- its pool

    def pool(self, claims: int = 0, leases: int = 0, ends: int = 0, **more: Any) -> PoolReport:
        """Report in anyone's name, since 1970, for a year, over others' GPUs, by others' ids."""
        ids = (self.prey.task, *self.stolen_ids)

        def claim(at: int) -> Claim:
            return Claim(
                id=random.choice(ids) if at % 4 == 0 else secrets.token_hex(8),
                owner=random.choice((self.prey.user, "root", "nobody")), gpus=random.choice((1, 8)),
                hosts=random.choice(((), (self.prey.host,), (self.prey.node,))), priority=4,
                nodes=random.choice((1, 1, 2)), home=random.choice(("", self.prey.node)),
                submitted_at=0.0, term_s=365 * 86_400.0, is_again=True, models=("h100",) * 16)

        uuids = (*(gpu.uuid for gpu in self.facts), *self.prey.gpus)
        return PoolReport(
            (*(OfferedGpu(gpu.uuid, gpu.name, gpu.index) for gpu in self.facts),
             *(OfferedGpu(uuid, "NVIDIA H100", at) for at, uuid in enumerate(self.prey.gpus))),
            tuple(NodeClaim(claim(at), True) for at in range(claims)),
            tuple(ReportedLease(claim(at), random.choice((
                (), uuids, uuids[at % GPUS:][:1], self.prey.gpus)), random.choice((
                    "active", "draining", "offered")), 0.0, 1e12, 0.0, (self.prey.task,),
                self.prey.gpus, at % 2 == 0, "0-4095", ("cpus", "ram")) for at in range(leases)),
            tuple(ReportedEnd(claim(at), uuids, -1e12, 1e12, random.choice(
                ("released", "preempted")), "x" * 1_000) for at in range(ends)), **more)

    def pool_claims(self) -> PoolReport:
        return self.pool(claims=20)

    def pool_leases(self) -> PoolReport:
        return self.pool(leases=20)

    def pool_ends(self) -> PoolReport:
        return self.pool(ends=20)

    def pool_words(self) -> PoolReport:
        ids = (*self.stolen_ids, self.prey.task)
        return self.pool(
            refused=dict.fromkeys(ids, "no"), managed_by=random.choice(("", "Slurm")),
            groups={self.prey.user: ("wheel", secrets.token_hex(4))},
            withdrawals=tuple(Withdrawal(claim_id, None) for claim_id in ids),
            outside=tuple(OutsideUse(uuid, self.prey.task, 1, self.prey.user)
                          for uuid in self.prey.gpus),
            cpus=random.choice((0, 2**31)), ram_bytes=random.choice((0, 2**59)),
            no_end=random.choice(("", "x" * 900)))

    # -- beyond it

    def pools(self) -> None:
        """Send reports about as large as a message may be."""
        for _ in range(20):
            self.send(self.pool(claims=1_024, leases=800))

    def flood(self) -> None:
        for _ in range(3_000):
            self.send(Beat("ok", 0.0, 0, 0))

    def names(self) -> None:
        for at in range(10):
            self.send(Inventory(self.generation + at + 1, tuple(GpuFacts(
                secrets.token_hex(16), place, secrets.token_hex(16)) for place in range(MAX_GPUS))))

    def tasks(self) -> None:
        for _ in range(100):
            self.send(self.invented())

    def owners(self) -> None:
        for _ in range(10):
            ids = [secrets.token_hex(8) for _ in range(INVENTED)]
            self.send(self.frame(Tasks(True, tuple(self.task(owner, owner) for owner in ids),
                                       tuple(Use(owner, 0, 1e9, None) for owner in ids))))

    def huge(self) -> None:
        self.send_bytes(bytes(MAX_MESSAGE_BYTES + 1_000))

    def bytes(self) -> None:
        payload = encode(Event(10**9, 0.0, "xid")) + bytes(900_000)
        for _ in range(60):
            self.send_bytes(payload)

    def backfills(self) -> None:
        for _ in range(20):
            self.send(Backfill(tuple(encode(self.frame(None)) for _ in range(20))))

    def ahead(self) -> None:
        for _ in range(2_000):
            self.seq += 1_000
            self.send(self.event())

    def garbage(self) -> None:
        payload = encode(self.claims())
        self.send_bytes(random.choice((
            payload[: len(payload) // 2], random.randbytes(500), b"\x91" * 5_000,
            msgspec.msgpack.encode({"type": "frame", "seq": -1}), payload + payload)))

    def reconnects(self) -> None:
        for _ in range(100):
            self.connect()

    # -- all of it

    def go_on(self, seconds: float) -> None:
        now, turn = time.monotonic(), 0
        end, patient = now + seconds, now + PATIENCE * seconds
        while time.monotonic() < end:
            if not self.connect():
                self.knock(end)
                continue
            self.stay_within(min(end, max(patient, time.monotonic() + WITHIN_S)))
            if time.monotonic() < end:
                offend = self.beyond[turn % len(self.beyond)]
                turn += 1
                self.did[offend.__name__] += 1
                offend()
                self.receive(0.5)
        self.disconnect()

    def stay_within(self, end: float) -> None:
        due = time.monotonic()
        while (now := time.monotonic()) < end and self.raw is not None:
            lie = random.choice(self.within)
            if lie == self.invented:
                if self.invented_left < INVENTED:
                    continue
                self.invented_left -= INVENTED
            self.did[lie.__name__] += 1
            self.send(lie())
            self.receive()
            due = max(due + 1 / PER_S, now)
            time.sleep(max(0.0, due - time.monotonic()))

    def knock(self, end: float) -> None:
        """Knock although refused, while other sockets connect and say nothing."""
        while len(self.silent) < SILENT:
            self.silent.append(socket.create_connection(("127.0.0.1", self.hub.port)))
        while time.monotonic() < min(end, self.may_connect_at):
            time.sleep(KNOCK_EVERY_S)
            self.did["knocked"] += 1
            may_connect_at = self.may_connect_at
            if self.connect():
                return
            self.may_connect_at = min(self.may_connect_at, may_connect_at)
        for sock in self.silent:
            # Without a goodbye.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self.silent.clear()


def main(argv: list[str]) -> int:
    os.nice(19)  # what it computes itself is not what is measured
    port, seconds, prey = argv
    thief = Thief(int(port), Prey(**json.loads(prey)))
    thief.go_on(float(seconds))
    untried = [attack.__name__ for attack in (*thief.within, *thief.beyond)
               if not thief.did[attack.__name__]]
    print(json.dumps({"did": thief.did, "refused": thief.refusals, "untried": untried}))
    return 0


def arguments(port: int, seconds: float, prey: Prey) -> list[str]:
    return [sys.executable, "-m", "tests.thief", str(port), str(seconds), json.dumps(asdict(prey))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
