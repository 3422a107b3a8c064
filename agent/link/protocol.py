"""State machine of the connection to the hub: when to dial, what to send, when to give up. Pure.

    resting -> dialing -> calling -> greeting -> live        and from each back to resting

Time is an argument: `now` is a monotonic clock. `step` returns what the link is to do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from gpudeck.wire import (
    BEAT_EVERY_S,
    SPOKEN_VERSIONS,
    Ack,
    Beat,
    Call,
    Challenge,
    Echo,
    FromHub,
    Hello,
    Probe,
    Refused,
    Welcome,
    encode,
)

from .delivery import BURST_EVERY_S, MessageBacklog, MessageDelivery

GREETING_S = 15.0  # from dialing to an open connection, and from there to the Welcome
BACK_OFF_MAX_S = 60.0
DENIED_S = (15.0, 60.0)  # a strange hub is not mended by asking fast
TOLD_MIN_S = 5.0  # a hub that says when to come back is believed from here on
STEADY_S = 30.0  # a connection that held this long was a good one
# While Frames flow a Beat goes with one of them, which may be this late: by itself it would wake
# both ends once more.
FRAME_WITHIN_S = 1.25


@dataclass(frozen=True, slots=True)
class OpenConnection:
    pass


@dataclass(frozen=True, slots=True)
class SendToHub:
    body: bytes


@dataclass(frozen=True, slots=True)
class CloseConnection:
    reason: str


Act = OpenConnection | SendToHub | CloseConnection
Phase = Literal["resting", "dialing", "calling", "greeting", "live"]


class HubIdentityError(Exception):
    """Whoever answers is not our hub. The sentence is for people."""


class Credentials(Protocol):
    """Who we are, and how we know the hub."""

    def call(self) -> Call: ...
    def hello(self, call: Call, challenge: Challenge) -> Hello:
        """Raises Stranger."""


def back_off(attempt: int, uniform: Callable[[float, float], float]) -> float:
    """Full jitter. The library's own reconnect brings 1,000 agents back within one second."""
    return uniform(0.0, min(BACK_OFF_MAX_S, 2.0 ** min(attempt, 10)))


class LinkStateMachine:
    def __init__(self, backlog: MessageBacklog, credentials: Credentials,
                 uniform: Callable[[float, float], float]) -> None:
        self.phase: Phase = "resting"
        self.trouble = ""  # why there is no connection, for people
        self.welcomes = 0
        self._backlog = backlog
        self._delivery = MessageDelivery(backlog)
        self._credentials = credentials
        self._call: Call | None = None
        self._uniform = uniform
        self._attempt = 0
        self._call_at = 0.0
        self._dialed_at = 0.0
        self._live_since = 0.0
        self._beat_at = 0.0
        self._stream = ""  # that our Hello named
        self._hang_up = ""
        self._answers: list[bytes] = []

    # what happened

    def hold_until(self, now: float) -> None:
        """Do not call before: there is something to learn first that belongs in the Hello."""
        self._call_at = now

    def renew(self, now: float, why: str) -> None:
        """What our Hello said has changed: say it again."""
        if self.phase == "live":
            self._rest(now, why, 0.0)

    def opened(self, now: float) -> None:
        if self.phase == "dialing":
            self.phase, self._dialed_at = "calling", now
            self._call = self._credentials.call()
            self._answers = [encode(self._call)]

    def closed(self, now: float, why: str, denied: bool = False) -> None:
        """No connection came about, or it ended."""
        if self.phase == "resting":
            return
        if self.phase == "live" and now - self._live_since >= STEADY_S:
            self._attempt = 0
        self._rest(now, why, self._uniform(*DENIED_S) if denied else self._next_back_off())

    def heard(self, message: FromHub, now: float, wall: float) -> None:
        self._delivery.silent_since = now
        match message:
            case Challenge() if self.phase == "calling" and self._call is not None:
                self._challenged(self._call, message, now)
            case Welcome() if self.phase == "greeting":
                self._welcomed(message, now)
            case Refused():
                self._refused(message, now)
            case Ack() if self.phase == "live" and self._stream == self._backlog.stream:
                self._delivery.ack(message, now)
            case Probe() if self.phase == "live":
                self._answers.append(encode(Echo(message.probe_id, wall)))
            case _:
                pass

    # what to do

    def step(self, now: float, beat: Callable[[], Beat]) -> list[Act]:
        if self.phase == "live" and self._stream != self._backlog.stream:
            self.renew(now, "the outbox has begun anew")
        elif reason := self._hopeless(now):
            self.closed(now, reason)
        if self.phase == "resting":
            return self._after_rest(now)
        said: list[Act] = [SendToHub(body) for body in self._answers]
        self._answers = []
        if self.phase == "live":
            said += self._beats(now, beat)
            said += map(SendToHub, self._delivery.burst(now))
            said += map(SendToHub, self._delivery.backfill(now))
        return said

    def next_step_at(self, now: float) -> float:
        """When `step` is wanted again if nothing happens before."""
        if self.phase == "resting":
            return self._call_at
        if self.phase != "live":
            return now + 1.0
        if self._delivery.has_unsent:
            return now + BURST_EVERY_S
        step_at = self._delivery.next_step_at
        return self._beat_alone_at if step_at is None else min(self._beat_alone_at, step_at)

    def _after_rest(self, now: float) -> list[Act]:
        if self._hang_up:
            reason, self._hang_up = self._hang_up, ""
            return [CloseConnection(reason)]
        if now < self._call_at:
            return []
        self.phase, self._dialed_at = "dialing", now
        return [OpenConnection()]

    def _challenged(self, call: Call, challenge: Challenge, now: float) -> None:
        try:
            hello = self._credentials.hello(call, challenge)
        except HubIdentityError as stranger:
            self._rest(now, str(stranger), self._uniform(*DENIED_S))
            return
        self.phase, self._stream = "greeting", self._backlog.stream
        self._answers.append(encode(hello))

    def _refused(self, refused: Refused, now: float) -> None:
        wait = self._next_back_off()
        if self.phase != "calling":  # only a hub that has shown its key may say how long
            told = refused.retry_after_s * self._uniform(1.0, 1.25)
            wait = told if told >= TOLD_MIN_S else max(told, wait)
        self._rest(now, f"the hub refuses: {refused.reason}", wait)

    def _welcomed(self, welcome: Welcome, now: float) -> None:
        if welcome.wire_version not in SPOKEN_VERSIONS:
            self._rest(now, f"the hub speaks wire version {welcome.wire_version}, this agent "
                            f"{SPOKEN_VERSIONS}; update the older one", self._uniform(*DENIED_S))
            return
        if self._stream != self._backlog.stream:
            self._rest(now, "the outbox has begun anew", 0.0)
            return
        self._backlog.welcomed(welcome.acked_seq, welcome.spans)
        self.phase, self.trouble = "live", ""
        self.welcomes += 1
        self._live_since = self._beat_at = now
        self._delivery.begin(now, now - FRAME_WITHIN_S)

    def _hopeless(self, now: float) -> str:
        if self.phase in ("dialing", "calling", "greeting") and now - self._dialed_at > GREETING_S:
            return f"the hub did not answer within {GREETING_S:.0f} s"
        if self.phase == "live":
            return self._delivery.hopeless(now)
        return ""

    def _beats(self, now: float, beat: Callable[[], Beat]) -> list[Act]:
        goes_along = self._delivery.has_unsent
        if now < (self._beat_at - BEAT_EVERY_S / 8 if goes_along else self._beat_alone_at):
            return []
        self._beat_at = max(self._beat_at + BEAT_EVERY_S, now + BEAT_EVERY_S / 2)
        return [SendToHub(encode(beat()))]

    @property
    def _beat_alone_at(self) -> float:
        return min(max(self._beat_at, self._delivery.burst_at + FRAME_WITHIN_S),
                   self._beat_at + BEAT_EVERY_S / 2)

    @property
    def is_filling(self) -> bool:
        """An Ack lets more go."""
        return self._delivery.is_filling

    def _next_back_off(self) -> float:
        wait = back_off(self._attempt, self._uniform)
        self._attempt += 1
        return wait

    def _rest(self, now: float, why: str, wait: float) -> None:
        self._backlog.broke()
        self.phase, self.trouble, self._call_at = "resting", why, now + wait
        self._hang_up, self._answers = why, []
