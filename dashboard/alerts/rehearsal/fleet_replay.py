"""What was known of each GPU and node at each second, replayed from samples the way the live fleet
follows them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpudeck.contract.wire import GPU_STATES

from ...fleet.fleet import SILENT_AFTER_S
from ..core.numbers import grouped
from ..core.rule_signal import Floats
from ..core.state_machine import Mask, Rows

STALE = GPU_STATES.index("stale")
AWAY_S = 5.0  # if no GPU at all is sampled for longer, the hub itself was down
NEVER = -1e15


@dataclass(frozen=True, slots=True)
class ReplayedSamples:
    """Samples of a chunk, GPUs x seconds from `t0` on. NaN: not reported then."""

    t0: int
    state: Floats
    values: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class ReplayedFleetState:
    """GPUs x seconds: the newest values of each; `is_listed`: its node still reports it. Nodes x
    seconds: whether each belongs to the fleet, had been heard of by then, and is silent.
    `is_blind`: the hub did not watch in that second."""

    age_s: Floats
    state: Floats
    values: dict[str, Floats]
    is_listed: Mask
    is_there: Mask
    is_heard: Mask
    is_silent: Mask
    is_blind: Mask


class FleetStateReplay:
    """Replays chunk after chunk, in order of time; GPUs and nodes are only added."""

    def __init__(self, listens_from: float) -> None:
        self._listens_from = listens_from
        self._at = self._state = np.zeros(0)  # of each GPU: time and state of its newest sample
        self._values: dict[str, Floats] = {}
        # Of each node, by a clock that stands still while this hub is down.
        self._last_heard_at = self._since = np.zeros(0)
        self._away_s, self._looked_at = 0.0, NEVER

    def take(self, samples: ReplayedSamples, node_at: Rows, since: Floats) -> ReplayedFleetState:
        """Replay a chunk. `since`: from when on each node is known to belong to the fleet, whether
        or not it was heard of; inf: not known."""
        seconds = samples.t0 + np.arange(samples.state.shape[1], dtype=np.float64)
        at, state, values = self._newest(samples, seconds)
        groups = grouped(node_at, np.ones(len(node_at), bool), len(since))
        of_node = groups.join(np.maximum, at, NEVER)
        clock, is_blind = self._clock(samples, seconds)
        tells = of_node == seconds
        is_there = self._there(tells, seconds, since)
        is_listed = (at == of_node[node_at]) & (at > NEVER)
        silent_s = clock - self._last_heard(tells, clock)
        # An agent that reports stale readings is heard of, though its GPUs are not.
        is_read = groups.join(np.maximum, is_listed & (state != STALE), 0.0) > 0
        is_heard = of_node > NEVER
        is_silent = is_there & (silent_s >= SILENT_AFTER_S) & (is_read | ~is_heard)
        return ReplayedFleetState(seconds - at, state, values, is_listed, is_there, is_heard,
                                  is_silent, is_blind)

    def _newest(self, samples: ReplayedSamples, seconds: Floats
                ) -> tuple[Floats, Floats, dict[str, Floats]]:
        size = len(samples.state)
        is_reported = ~np.isnan(samples.state)
        place = np.where(is_reported, np.arange(1, len(seconds) + 1, dtype=np.int32), 0)
        place = np.maximum.accumulate(place, axis=1)

        def newest(before: Floats, values: Floats, nothing: float) -> Floats:
            whole = np.concatenate([_padded(before, size, nothing)[:, None], values], axis=1)
            return np.take_along_axis(whole, place, axis=1)

        at = newest(self._at, np.broadcast_to(seconds, samples.state.shape), NEVER)
        state = newest(self._state, samples.state, np.nan)
        values = {name: newest(self._values.get(name, np.zeros(0)), values_, np.nan)
                  for name, values_ in samples.values.items()}
        self._at, self._state = at[:, -1].copy(), state[:, -1].copy()
        self._values = {name: newest_values[:, -1].copy() for name, newest_values in values.items()}
        return at, state, values

    def _clock(self, samples: ReplayedSamples, seconds: Floats) -> tuple[Floats, Mask]:
        """Return a clock that stands still while this hub is down, as silence in that time is not
        the nodes'; and the seconds in which it was down."""
        looks = (~np.isnan(samples.state)).any(axis=0)
        last = np.maximum.accumulate(np.where(looks, seconds, self._looked_at))
        before = np.append(self._looked_at, last[:-1])
        gap_s = np.where(looks & (before > NEVER) & (seconds - before > AWAY_S),
                         seconds - before, 0.0)
        away_s = self._away_s + np.cumsum(gap_s)
        self._away_s, self._looked_at = float(away_s[-1]), float(last[-1])
        return seconds - away_s, seconds - last > AWAY_S

    def _there(self, tells: Mask, seconds: Floats, since: Floats) -> Mask:
        first = np.where(tells.any(axis=1), seconds[tells.argmax(axis=1)], np.inf)
        self._since = np.minimum(_padded(self._since, len(since), np.inf),
                                 np.minimum(since, first))
        return np.asarray(seconds >= self._since[:, None])

    def _last_heard(self, tells: Mask, clock: Floats) -> Floats:
        before = _padded(self._last_heard_at, len(tells), NEVER)
        last_heard = np.maximum.accumulate(np.where(tells, clock, before[:, None]), axis=1)
        self._last_heard_at = last_heard[:, -1].copy()
        return np.asarray(np.maximum(last_heard, np.maximum(self._since,
                                                            self._listens_from)[:, None]))


def _padded(before: Floats, size: int, nothing: float) -> Floats:
    return np.concatenate([before, np.full(size - len(before), nothing)])
