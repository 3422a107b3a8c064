"""Settings of `gpudeck demo`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudeck.errors import CommandError, ExitCode
from gpudeck.settings import Setting, count, folder, load, port, text, whole

PROFILES = ("h100", "h100-mig", "a100", "l40s", "4090", "mixed")
NODES_MAX = 5_000
# History is simulated second by second, so a large fleet gets less of it.
PAST_GPU_SECONDS = 3_600_000
HOURS_MAX = 24
GPUS_MAX = 64

TABLE: tuple[Setting, ...] = (
    Setting("nodes", whole, 8, "number of nodes; 0 shows an empty hub"),
    Setting("gpus", count, 8, "GPUs per node"),
    Setting("profile", text, "h100", f"the boards: {', '.join(PROFILES)}", choices=PROFILES),
    Setting("seed", whole, 1, "another number makes another fleet"),
    Setting("port", port, 8050, "port on 127.0.0.1; 0 picks a free one"),
    Setting("data", folder, None, "folder to keep; default: a temporary one, removed at the end"),
    Setting("faults", text, "on", "on: a GPU is lost now and then; off: none",
            choices=("on", "off")),
    Setting("history_hours", whole, 2, "hours of simulated history, made in the first minute; less "
            "with more than 500 GPUs; 0: none"),
    Setting("second_person", text, "off", "on: as on a real hub, an action on more than 3 jobs "
                                          "waits for "
            "a second person, who can be added in Settings", choices=("on", "off")),
)


@dataclass(frozen=True, slots=True)
class DemoSettings:
    nodes: int
    gpus: int
    profile: str
    seed: int
    port: int
    data: Path | None
    faults: str
    second_person: str = "off"
    history_hours: int = 2

    @property
    def past_s(self) -> int:
        gpus = max(1, self.nodes * self.gpus)
        return min(self.history_hours * 3_600, PAST_GPU_SECONDS // gpus)


def read(argv: Sequence[str], env: Mapping[str, str]) -> DemoSettings:
    settings = DemoSettings(**load("demo", TABLE, argv, env,
                                   "A hub and a simulated fleet on this machine, without a GPU."))
    for name, number, most in (("nodes", settings.nodes, NODES_MAX),
                               ("gpus", settings.gpus, GPUS_MAX),
                               ("history-hours", settings.history_hours, HOURS_MAX)):
        if number > most:
            raise CommandError(f"--{name} {number}: at most {most}", ExitCode.USAGE)
    return settings
