"""Writes the reference pages that are made from the code. `--check` only compares.

tests/unit/test_docs.py runs the comparison, so that a setting or a metric cannot be forgotten.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gpudeck.measures.events import KINDS
from gpudeck.measures.metrics import ABSENCE_MEANING, COLUMNS, SLOW, THROTTLE_REASONS, Metric
from gpudeck.measures.xid import KNOWN
from gpudeck.settings import Setting

HERE = Path(__file__).resolve().parent
NOTE = "<!-- made by docs/make_reference.py: change the table in the code -->"

UNITS = {"throttle_bits": "bit mask"}


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([row(*head), row(*("---" for _ in head)), *(row(*cells) for cells in rows)])


def metric_row(metric: Metric) -> tuple[str, ...]:
    words = "".join(f" {code}: {word}." for code, word in (metric.words or {}).items())
    return (
        metric.label, f"`{metric.key}`", metric.unit or UNITS.get(metric.key, ""),
        metric.meaning + words, *(f"`{name}`" if name else ""
                                  for name in (metric.filter_name, metric.prometheus)),
    )


def metrics_page() -> str:
    head = ("metric", "key", "unit", "meaning", "in filters", "Prometheus")
    return "\n\n".join([
        "# What the numbers mean", NOTE,
        "Every GPU reports these once a second. A value outside its possible range is a driver's "
        "sentinel and is not shown.",
        table(head, [metric_row(metric) for metric in COLUMNS]),
        "## Slow metrics",
        "Read every 15 s, and sent when one has changed or a minute has passed. Shares and rates "
        "are means of those 15 s. A counter may begin again when the driver is loaded.",
        table(head, [metric_row(metric) for metric in SLOW]),
        "## When a number is not there",
        table(("word", "meaning"), [(f"`{a.word}`", text) for a, text in ABSENCE_MEANING.items()]),
        "## Throttle reasons",
        table(("bit", "reason"), [(f"`{bit:#x}`", word) for bit, word in THROTTLE_REASONS.items()]),
    ]) + "\n"


def setting_row(setting: Setting) -> tuple[str, ...]:
    env = f"`{setting.env}`" + (f" or `{setting.env}_FILE`" if setting.secret else "")
    return (f"`{setting.name}`", setting.flag_shown, env, setting.default_shown, setting.help)


def settings_page() -> str:
    from agent.cli.pool_manifest import MANIFEST
    from agent.settings import TABLE as AGENT
    from dashboard.settings import HUB

    head = ("name", "flag", "environment", "default", "meaning")
    parts = ["# Settings", NOTE,
             "A flag beats the environment, the environment beats the file given by `--config` or "
             "`GPUDECK_CONFIG`, the file beats the default. In the file each program has a "
             "section, `[hub]`, `[agent]` or `[pool]`, with the names below. A secret is never a "
             "flag; it may be a file."]
    for title, settings in (("gpudeck hub", HUB), ("gpudeck agent", AGENT),
                            ("gpudeck pool manifest", MANIFEST)):
        parts += [f"## {title}", table(head, [setting_row(setting) for setting in settings])]
    return "\n\n".join(parts) + "\n"


def events_page() -> str:
    kinds = [(kind.label, f"`{kind.key}`", kind.severity, kind.advice) for kind in KINDS.values()]
    xids = [(str(xid.code), xid.meaning, xid.blame, xid.severity, xid.advice)
            for xid in KNOWN.values()]
    return "\n\n".join([
        "# Events", NOTE, EVENTS_ABOUT,
        table(("event", "key", "severity", "what to do"), kinds),
        "## Xids", XIDS_ABOUT,
        table(("Xid", "meaning", "look first at the", "severity", "what to do"), xids),
    ]) + "\n"


EVENTS_ABOUT = """\
Events of a node are reported by its agent, once each, with time, description, what to do, and
the numbers. What was reported is stored in the same transaction as its message, so that
a restart of the agent, however it ended, tells nothing again.

- A counter's first reading is where counting begins: errors from before the agent are no event.
  A lasting fault (a pending row remap, a recovery that the driver advises, a lost GPU) is
  reported once when it is first seen, and again only after it was gone.
- A storm of corrected errors, or of one Xid on one GPU, is one event a minute with a `count`.
- The start of throttling is reported after 3 seconds, its end after 10; idle, chosen
  clocks, sync boost and display clocks are none. The software power cap alone is `info`: a board
  that works at its allowed power throttles by design.
- A task's end says what it used while the agent watched: peak and mean of memory, and of its
  share of the SMs. What the driver does not tell is left out, never 0. Where its accounting is on,
  its own counters are added (`driver_mem_peak_bytes`, `driver_util_pct`,
  `driver_mem_util_pct`, `driver_seconds`). Tasks that began or ended
  while the agent was away are reported when it is back. A task on a lost GPU is not said to have
  ended, since nobody can see it.
- `clock_stepped` compares the wall clock with one that continues while the machine sleeps; more
  than 2 seconds count."""

XIDS_ABOUT = """\
An Xid is the driver's word that something went wrong. It comes by the driver's own event, also
just before the driver hangs; those from before the agent began are not reported. The severity of
the event `xid` is that of its number. An Xid 45 within 30 seconds of an end that gpudeck ordered on
the node says so. Numbers and remedies follow NVIDIA's catalogue; one that is not listed here is
reported as `warning`."""


def between(name: str, begin: str, text: str, end: str) -> str:
    """The page as it is, with what is between its two marks replaced."""
    page = (HERE / name).read_text()
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return "".join([before, begin, "\n", NOTE, "\n\n", text, "\n", end, after])


def orders_page() -> str:
    from agent.actions.checks import CHECKS, ON_ARRIVAL

    rows = [(str(number), check.name, check.meaning,
             ", ".join(f"`{code}`" for code in check.codes))
            for number, check in enumerate(CHECKS, 1)]
    head = ("", "check", "what must hold", "refused as")
    return between("commands.md", CHECKS_BEGIN, "".join([
        "When the order arrives:\n\n", table(head, rows[:len(ON_ARRIVAL)]),
        "\n\nAt the action, when the intent is on disk:\n\n",
        table(head, rows[len(ON_ARRIVAL):])]), CHECKS_END)


CHECKS_BEGIN, CHECKS_END = "<!-- checks -->", "<!-- end of checks -->"


def rules_page() -> str:
    """Return the page of rules; `python -m tests.faults.matrix` measures its table of faults."""
    def seconds(value: int | None) -> str:
        return "" if value is None else f"{value} s"

    measured = json.loads((HERE / "fault_matrix.json").read_text())
    head = ("fault", "on", "lasts", "alert", "notifications", "firing is sent after",
            "resolved is sent after", "first line of the notification")
    return between("rules.md", FAULTS_BEGIN, table(head, [
        (fault["fault"], fault["on"], seconds(fault["lasts_s"]),
         f"`{fault['alert']}`" if fault["alert"] else "none",
         str(fault["notifications"]), seconds(fault["firing_sent_s"]),
         seconds(fault["resolved_sent_s"]), fault["title"]) for fault in measured]), FAULTS_END)


FAULTS_BEGIN, FAULTS_END = "<!-- faults -->", "<!-- end of faults -->"


def api_page() -> str:
    from docs.api_page import page

    return page(NOTE)


PAGES: dict[str, Callable[[], str]] = {
    "api.md": api_page, "metrics.md": metrics_page, "settings.md": settings_page,
    "events.md": events_page, "commands.md": orders_page, "rules.md": rules_page,
}


def stale() -> list[str]:
    return [name for name, make in PAGES.items()
            if not (HERE / name).exists() or (HERE / name).read_text() != make()]


def main(argv: Sequence[str]) -> int:
    if "--check" in argv:
        print(*stale(), sep="\n")
        return 1 if stale() else 0
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.exit(main(sys.argv[1:]))
