"""Count of samples at the end, by what the active hub answers, and of those in the mirror."""

import time
from collections import Counter
from dataclasses import dataclass

from tests.faults.scale.nodes import GPUS, NUMBER, Progress, gpu_of
from tests.faults.scale.site import ScaleHub, ScaleSite
from tests.integration.hubs import wait_for

Numbers = Counter[tuple[str, int]]  # GPU, number of the sample
AGAIN_S = 5.0
NEW_S = 20.0  # the newest seconds are not answered yet
MOST_LOOKS = 24


@dataclass
class SampleCount:
    due: Numbers
    there: Numbers

    @property
    def missing(self) -> list[tuple[str, int]]:
        return [key for key in self.due if not self.there[key]]

    @property
    def duplicates(self) -> list[tuple[str, int]]:
        """Return samples that are there more than once, and such that were never sent."""
        return [key for key, times in self.there.items() if times > 1 or key not in self.due]


def count_samples(site: ScaleSite) -> SampleCount:
    """Ask the active hub for every sample: it has what the others archived."""
    progress = site.progress
    due = Counter({(gpu_of(name, at), number): 1 for name, row in progress.items()
                                 for at in range(GPUS) for number in range(1, row.number + 1)})
    hub = site.active
    wait_for(lambda: hub.get("/api/v1/archive")["state"] == "archiving", why="it is joined")
    time.sleep(NEW_S)
    return SampleCount(due, _steady(hub, progress))


def count_mirrored(site: ScaleSite, due: Numbers) -> Numbers:
    """Count the samples that VictoriaMetrics has."""
    starts = [row.start for row in site.progress.values()]
    samples = site.engines.metrics.samples(int(min(starts)) - 60, int(time.time()), NUMBER)
    return Counter(key for _, gpu, _, value in samples.elements()
                   if (key := (gpu, int(value))) in due)


def _steady(hub: ScaleHub, progress: dict[str, Progress]) -> Numbers:
    """Return what it has as soon as nothing more comes: nodes bring what was not archived."""
    before: Numbers | None = None
    for _ in range(MOST_LOOKS):
        numbers = _numbers(hub, progress)
        if numbers == before:
            break
        before = numbers
        time.sleep(AGAIN_S)
    return numbers


def _numbers(hub: ScaleHub, progress: dict[str, Progress]) -> Numbers:
    numbers: Numbers = Counter()
    for name, row in progress.items():
        first, *beside = (gpu_of(name, at) for at in range(GPUS))
        span = f"start={int(row.start) - 5}&end={int(row.start) + row.number + 5}&step=1"
        answer = hub.ask(f"/api/v1/series?gpu={first}&beside={','.join(beside)}"
                         f"&metric={NUMBER}&{span}")
        if answer.status != 404:  # it never had this node
            assert answer.status == 200, answer.body
            lines = {first: answer.json["mean"]} | {
                gpu: bands[NUMBER]["mean"] for gpu, bands in answer.json["beside"].items()}
            numbers.update((gpu, int(value)) for gpu, values in lines.items()
                           for value in values if value is not None)
    return numbers
