"""Faults of the scale matrix: what is killed with -9, or stands still for a while, or is lost."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from subprocess import TimeoutExpired
from typing import NamedTuple

from tests.faults.scale.nodes import Control
from tests.faults.scale.site import ScaleHub, ScaleSite, retry

RESTART_S = 10.0  # as units of `gpudeck service install` wait
STOPPED_S = 30.0
APART_S = 0.2
WITHIN_S = 10.0  # the whole fleet is seen again
# One that stands still keeps its database for 5 s, and its agents for as long.
TAKEOVER_S = {"killed": 20.0, "stopped": 30.0}


class Moment(NamedTuple):
    """Moment at which something is about to be sent, after the end of each span of so long."""

    every_s: float
    after_s: float

    def wait(self) -> None:
        time.sleep((self.after_s - time.time()) % self.every_s)


# A block of seconds is written, and put into the archive, 20 s after each five minutes; a minute is
# sent to the mirror 10 s after its end.
BLOCK, MINUTE, ANY = Moment(300.0, 15.0), Moment(60.0, 8.0), Moment(1.0, 0.0)


@dataclass(frozen=True)
class Fault:
    name: str
    run: Callable[[ScaleSite], None]
    within_s: float = WITHIN_S
    when: Moment = ANY
    is_quick: bool = False


def kill_hub(site: ScaleSite) -> None:
    hub = site.active
    hub.kill()
    time.sleep(RESTART_S)
    hub.start()


def stop_hub(site: ScaleSite) -> None:
    hub = site.active
    hub.signal_all(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    hub.signal_all(signal.SIGCONT)
    _start_if_ended(hub)


def _start_if_ended(hub: ScaleHub) -> None:
    """Start it again, as its service does, if it has found that another one has taken over."""
    with suppress(TimeoutExpired):
        hub.process.wait(RESTART_S)
        hub.start()


def lose_disk(site: ScaleSite) -> None:
    hub = site.active
    hub.kill()
    site.lose_disk(hub)
    hub.start()


def kill_while_clocks_step(site: ScaleSite) -> None:
    site.control(Control(apart_s=APART_S))
    kill_hub(site)


def kill_postgres(site: ScaleSite) -> None:
    site.engines.postgres.signal(signal.SIGKILL)
    time.sleep(RESTART_S)
    retry(site.engines.postgres.start)


def kill_s3(site: ScaleSite) -> None:
    site.engines.s3.kill()
    time.sleep(RESTART_S)
    site.engines.s3.start()


def kill_metrics(site: ScaleSite) -> None:
    site.engines.metrics.kill()
    time.sleep(RESTART_S)
    site.engines.metrics.start()


def stopper(signal_all: Callable[[ScaleSite], Callable[[int], None]]
             ) -> Callable[[ScaleSite], None]:
    def stop(site: ScaleSite) -> None:
        signal_all(site)(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        signal_all(site)(signal.SIGCONT)

    return stop


FAULTS = (
    Fault("active hub killed", kill_hub, TAKEOVER_S["killed"], is_quick=True),
    Fault("active hub stopped for 30 s", stop_hub, TAKEOVER_S["stopped"]),
    Fault("PostgreSQL killed", kill_postgres, is_quick=True),
    Fault("PostgreSQL stopped for 30 s", stopper(lambda site: site.engines.postgres.signal)),
    Fault("S3 server stopped for 30 s", stopper(lambda site: site.engines.s3.signal), when=BLOCK),
    Fault("VictoriaMetrics killed", kill_metrics, when=MINUTE),
    Fault("VictoriaMetrics stopped for 30 s", stopper(lambda site: site.engines.metrics.signal),
          when=MINUTE),
    Fault("clocks of nodes 200 ms apart, and the active hub killed", kill_while_clocks_step,
          TAKEOVER_S["killed"]),
    Fault("S3 server killed", kill_s3, when=BLOCK),
    Fault("active hub killed, its disk thrown away", lose_disk, TAKEOVER_S["killed"]),
)
