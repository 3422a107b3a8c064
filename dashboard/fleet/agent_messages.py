"""Messages of a connected agent that need no more than its node and its connection."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpudeck.contract import wire
from gpudeck.contract.actions import Preview, Reply
from gpudeck.contract.desired_state import InForce
from gpudeck.contract.kubernetes import KubernetesNow, PodGpusNow
from gpudeck.contract.limits import LimitsNow
from gpudeck.contract.slurm import SlurmNow

from . import effects
from .agent_streams import AgentStream
from .fleet import Node

Effects = list[effects.Effect]


@dataclass(slots=True)
class AgentLinkState:
    """An agent's connection, which is known as `at`."""

    at: str
    node: Node
    stream: str
    received: AgentStream
    node_id: str = field(init=False)
    probe_id: int = 0
    probed_mono: float = -1e9
    is_probing: bool = False

    def __post_init__(self) -> None:
        self.node_id = self.node.hello.node_id

    def probe(self, now: float, mono: float) -> effects.SendMessage:
        self.probe_id += 1
        self.probed_mono = mono
        self.is_probing = True
        return effects.SendMessage(self.at, wire.Probe(self.probe_id, now))

    def is_answer(self, echo: wire.Echo) -> bool:
        """Return whether this is the first answer to the newest Probe."""
        is_first = self.is_probing and echo.probe_id == self.probe_id
        self.is_probing = self.is_probing and not is_first
        return is_first

    def take_unknown(self, message: wire.UnknownMessage) -> Effects:
        """Note a message of a newer agent: no reason to do without all else that it says."""
        answer: Effects = []
        if message.seq is not None:  # else it would be brought again for ever
            self.received.settle_one(message.seq)
            answer.append(effects.SendMessage(self.at, self.received.ack()))
        types = self.node.unknown_types
        if message.type not in types and len(types) < wire.MAX_UNKNOWN_TYPES:
            types.append(message.type)
            answer += [effects.SendMessage(self.at, wire.Ignored(message.type)),
                       effects.LogMessage("agent newer than this hub",
                                          {"node": self.node_id, "type": message.type})]
        return answer


# What was received on which connection, as bytes too, and when by both clocks.
MessageHandler = Callable[[AgentLinkState, Any, bytes, float, float], Effects]


def take_beat(link: AgentLinkState, beat: wire.Beat, _: bytes, now: float, mono: float) -> Effects:
    link.node.take_beat(beat, mono)
    link.received.settle(beat.first_seq - 1)
    return [effects.NodeReport(link.node_id, beat)]


def take_echo(link: AgentLinkState, echo: wire.Echo, _: bytes, now: float, mono: float) -> Effects:
    if link.is_answer(echo):
        link.node.set_clock(echo.agent_at, link.probed_mono, now, mono)
    return []


def answer_clock(link: AgentLinkState, clock: wire.Clock, _: bytes, now: float, mono: float
                 ) -> Effects:
    return [effects.SendMessage(link.at, wire.Time(clock.clock_id, now))]


def take_limits(link: AgentLinkState, limits: LimitsNow, _: bytes, now: float, mono: float
                ) -> Effects:
    link.node.limits = limits
    return []


def take_slurm(link: AgentLinkState, slurm: SlurmNow, _: bytes, now: float, mono: float) -> Effects:
    link.node.slurm, link.node.slurm_mono = slurm, mono
    return []


def take_kubernetes(link: AgentLinkState, kubernetes: KubernetesNow, _: bytes, now: float,
                    mono: float) -> Effects:
    link.node.kubernetes, link.node.kubernetes_mono = kubernetes, mono
    return []


def take_pod_gpus(link: AgentLinkState, pod_gpus: PodGpusNow, _: bytes, now: float, mono: float
                  ) -> Effects:
    link.node.pod_gpus, link.node.pod_gpus_mono = pod_gpus, mono
    return []


def pass_on(link: AgentLinkState, message: Preview | Reply | InForce, _: bytes, now: float,
            mono: float) -> Effects:
    return [effects.NodeReport(link.node_id, message)]


def refuse(link: AgentLinkState, message: wire.Call | wire.Hello, _: bytes, now: float, mono: float
           ) -> Effects:
    raise wire.WireError("Call and Hello are said once")
