"""The mirror as Prometheus text. Pure."""

from collections.abc import Iterator

from gpudeck.prometheus.text import family_by, single

from .service import MirrorService


def mirror_families(mirror: MirrorService) -> Iterator[str]:
    info = mirror.info()
    yield single("gpudeck_mirror_behind_seconds", "gauge",
                 "Age of the oldest second that the mirror's receiver has not taken.",
                 info.behind_s)
    yield family_by("gpudeck_mirror_samples_total", "counter",
                    "Samples sent to the mirror's receiver, refused by it, or dropped because too "
                    "many came late.", "what",
                    {what: float(info.counts[what])
                     for what in ("sent", "refused", "late_dropped")})
    yield single("gpudeck_mirror_lost_seconds_total", "counter",
                 "Seconds that history gave up before the mirror's receiver took them.",
                 float(info.counts["lost_seconds"]))
    yield single("gpudeck_mirror_failed", "gauge", "1: the mirror's receiver takes nothing.",
                 float(info.error is not None))
