"""Count of samples and commands at the end, by what the hubs that are left answer."""

import time
from collections import Counter
from dataclasses import dataclass, field

from tests.faults.scale.nodes import GPUS, NUMBER, Progress, gpu_of
from tests.faults.scale.site import IS_ONE_ARCHIVE, ScaleHub, ScaleSite

Numbers = Counter[tuple[str, int]]  # GPU, number of the sample
AGAIN_S = 5.0
NEW_S = 20.0  # the newest seconds are not answered yet
MOST_LOOKS = 24


@dataclass
class SampleCount:
    due: Numbers
    by_hub: list[Numbers] = field(default_factory=list)  # of each hub that was asked

    @property
    def missing(self) -> list[tuple[str, int]]:
        """Return samples that no hub has."""
        return [key for key in self.due if not any(numbers[key] for numbers in self.by_hub)]

    @property
    def duplicates(self) -> list[tuple[str, int]]:
        """Return samples that a hub has more than once, and such that were never sent."""
        return [key for numbers in self.by_hub for key, times in numbers.items()
                if times > 1 or key not in self.due]

    @property
    def at_both(self) -> list[tuple[str, int]]:
        """Return those that two hubs have: docs/scale.md says of which moments."""
        return [] if len(self.by_hub) < 2 else [key for key in self.by_hub[0]
                                                if self.by_hub[1][key]]


def count_samples(site: ScaleSite) -> SampleCount:
    """Ask the active hub for every sample; where each hub has its own archive, then the other."""
    progress = site.progress
    count = SampleCount(Counter({(gpu_of(name, at), number): 1 for name, row in progress.items()
                                 for at in range(GPUS) for number in range(1, row.number + 1)}))
    time.sleep(NEW_S)
    count.by_hub.append(_steady(site.active, progress))
    if not IS_ONE_ARCHIVE:
        first = site.active
        first.stop()
        site.wait_whole_at(site.active)
        count.by_hub.append(_steady(site.active, progress))
    return count


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
