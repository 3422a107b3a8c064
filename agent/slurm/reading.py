"""Reading of Slurm that an agent sends to the hub."""

import time

from msgspec.structs import replace

from gpudeck.contract.slurm import SlurmNow

from .core import SlurmTextError, report
from .programs import SlurmError, SlurmPrograms

CONFIG_EVERY_S = 300.0
BLIND = ("PrivateData of slurm.conf hides other users' jobs from {account}, so that only its own "
         "are shown")


class SlurmReading:
    """Reader of Slurm. Its configuration is read now and then, and after each failure."""

    def __init__(self, programs: SlurmPrograms) -> None:
        self._programs = programs
        self._config_at = -CONFIG_EVERY_S
        self._base = SlurmNow(0.0)

    def read(self) -> SlurmNow:
        try:
            return self._read(self._programs, time.monotonic())
        except (SlurmError, SlurmTextError) as why:
            self._config_at = -CONFIG_EVERY_S
            return replace(self._base, taken_at=time.time(), trouble=str(why)[:1_024])

    def _read(self, programs: SlurmPrograms, mono: float) -> SlurmNow:
        if mono - self._config_at >= CONFIG_EVERY_S:
            self._read_config(programs, mono)
        return report(programs.jobs(), programs.nodes(),
                      replace(self._base, taken_at=time.time()))

    def _read_config(self, programs: SlurmPrograms, mono: float) -> None:
        config, account = programs.config(), programs.account()
        rights = programs.rights(config)
        is_blind = rights != "all" and "jobs" in config.get("PrivateData", "").split(",")
        self._base = SlurmNow(
            0.0, cluster=config.get("ClusterName", "")[:256],
            version=config.get("SLURM_VERSION", "")[:256], account=account[:256], rights=rights,
            hidden=BLIND.format(account=account)[:1_024] if is_blind else "")
        self._config_at = mono
