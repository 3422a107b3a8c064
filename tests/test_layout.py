"""Reads the source and holds the rule of dependency (DESIGN 3) and the sizes of the house."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("agent", "dashboard", "widget")
SOURCES = sorted(
    path
    for folder in (*PROGRAMS, "gpudeck", "bench")
    for path in (ROOT / folder).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# Pure: time, randomness and data are arguments; events in, effects out.
PURE = (
    "agent/telemetry/sampler.py", "agent/telemetry/events.py", "agent/telemetry/gpu_events.py", "agent/telemetry/task_totals.py",
    "agent/telemetry/rate_limit.py", "agent/actions/guard.py", "agent/tasks/jobs.py", "agent/actions/verify.py",
    "agent/link/hub_clock.py", "agent/doctor/check.py", "agent/tasks/managers.py", "agent/tasks/launches.py",
    "agent/tasks/notebooks.py", "agent/actions/rule_condition.py",
    "agent/tasks/owners.py", "agent/quotas/evaluate.py", "dashboard/fleet/views.py", "dashboard/fleet/owner_views.py",
    "dashboard/fleet/events_views.py", "dashboard/prometheus/families.py", "dashboard/alerts/rehearsal/views.py",
    "gpudeck/wire.py", "gpudeck/metrics.py", "gpudeck/events.py", "gpudeck/xid.py",
    "gpudeck/actions.py", "gpudeck/message_limits.py", "gpudeck/audit_chain.py", "gpudeck/action_views.py",
    "gpudeck/limits.py", "gpudeck/packed_arrays.py", "agent/limits/timed_limits.py", "agent/limits/autotune.py",
    "gpudeck/action_words.py", "gpudeck/action_plan.py", "gpudeck/times.py", "gpudeck/command_sentences.py",
    "gpudeck/quota.py", "gpudeck/quota_usage.py", "gpudeck/desired_state.py",
    "dashboard/quotas/views.py", "dashboard/quotas/prometheus.py", "gpudeck/websocket.py",
    "gpudeck/prometheus_text.py", "gpudeck/dcgm.py", "gpudeck/ladder.py",
    "dashboard/history/columns.py", "dashboard/history/memory.py", "dashboard/history/merge.py",
    "widget/machine_view.py", "widget/static_table.py", "widget/simulate.py", "widget/cost.py",
    "widget/cost_words.py", "widget/fleet_view.py",
    "dashboard/history/rollup.py", "dashboard/history/task_minutes.py", "dashboard/history/usage.py",
    "dashboard/history/grid.py",
)
PURE_FOLDERS = ("dashboard/core",)
IMPURE_MODULES = frozenset((
    "time", "random", "os", "socket", "threading", "sqlite3", "logging", "subprocess", "secrets",
    "asyncio", "select", "signal", "urllib", "flask", "dash", "socketio", "flask_socketio",
    "gevent", "psutil", "pynvml", "requests",
))

# One outside technology, one file. A folder stands for all files in it.
HOME = {
    "pynvml": ("agent/backends/nvml/reader.py", "agent/backends/nvml/accounting.py",
               "agent/backends/nvml/ask.py",
               "agent/backends/nvml/events.py", "agent/backends/nvml/facts.py",
               "agent/backends/nvml/fields.py", "agent/backends/nvml/gpm.py",
               "agent/backends/nvml/limits.py",
               "agent/backends/nvml/links.py", "agent/backends/nvml/mig.py",
               "agent/backends/nvml/processes.py",
               "agent/backends/nvml/report.py", "agent/backends/nvml/session.py",
               "agent/backends/nvml/slow.py"),
    "flask_socketio": ("dashboard/web/bounded_socket.py",),
    # A node carries neither of these, nor what they bring.
    "socketio": ("dashboard/web/bounded_socket.py", "bench/ingest.py"),
    "engineio": ("dashboard/web/bounded_socket.py",),
    "dash": ("dashboard/pages", "dashboard/app.py"),
    "plotly": ("dashboard/pages", "widget/plot.py"),
    "duckdb": ("dashboard/history/embedded.py",),
    "pyarrow": ("dashboard/history/parquet.py", "dashboard/history/row_index.py",
                "dashboard/history/reading.py"),
    "sqlite3": ("agent/link/outbox_file.py", "agent/journal/store.py", "dashboard/state.py",
                "dashboard/access/store.py", "dashboard/nodes/store.py", "dashboard/runtime/sql_transaction.py",
                "dashboard/audit/store.py", "dashboard/actions/store.py",
                "dashboard/actions/standing_store.py", "dashboard/alerts/store.py",
                "dashboard/notifications/store.py",
                "dashboard/automation/store.py", "dashboard/quotas/store.py",
                "gpudeck/audit_file.py"),
    "cryptography": ("gpudeck/keys.py",),
    "yaml": ("dashboard/alerts/rules_file.py",),
    "smtplib": ("dashboard/notifications/mail.py",),
    "argon2": ("dashboard/access/passwords.py",),
    "anywidget": ("widget",),
}

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[int, int, str]]:
    """(line, level, module) of every import, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, 0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.level, node.module or ""


def crossing(path: Path) -> list[str]:
    """Imports that break the rule between programs."""
    program = name_of(path).partition("/")[0]
    depth = len(path.relative_to(ROOT).parts) - 1
    wrong = []
    for line, level, module in imports(path):
        first = module.partition(".")[0]
        nested = module.startswith(tuple(f"gpudeck.{name}" for name in (*PROGRAMS, "notebook")))
        if level == 0 and (first in PROGRAMS or nested):
            wrong.append(f"{name_of(path)}:{line} imports {module}; across programs only gpudeck.*")
        if level > depth and program in PROGRAMS:
            wrong.append(f"{name_of(path)}:{line} climbs out of {program}/")
        if program == "gpudeck" and level > 0:
            wrong.append(f"{name_of(path)}:{line} is relative; gpudeck says from gpudeck.x import")
    return wrong


def is_pure(path: Path) -> bool:
    name = name_of(path)
    return name in PURE or any(name.startswith(f"{folder}/") for folder in PURE_FOLDERS)


def impurities(path: Path) -> list[str]:
    return [
        f"{name_of(path)}:{line} imports {module}"
        for line, level, module in imports(path)
        if level == 0 and module.partition(".")[0] in IMPURE_MODULES
    ]


def strays(path: Path) -> list[str]:
    """Outside technologies imported away from home."""
    name = name_of(path)
    return [
        f"{name}:{line} imports {module}; its home is {HOME[module.partition('.')[0]]}"
        for line, level, module in imports(path)
        if level == 0
        and module.partition(".")[0] in HOME
        and not any(name == home or name.startswith(f"{home}/")
                    for home in HOME[module.partition(".")[0]])
    ]


def long_functions(path: Path) -> list[str]:
    return [
        f"{name_of(path)}:{node.lineno} {node.name} has {length} lines"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def test_there_is_something_to_read() -> None:
    assert len(SOURCES) > 20


def test_programs_meet_only_in_gpudeck() -> None:
    assert [wrong for path in SOURCES for wrong in crossing(path)] == []


def test_tests_never_use_the_nested_names() -> None:
    nested = tuple(f"gpudeck.{name}" for name in (*PROGRAMS, "notebook"))
    assert [
        f"{name_of(path)}:{line} {module}"
        for path in TESTS
        for line, _, module in imports(path)
        if module.startswith(nested)
    ] == []


def test_pure_files_are_pure() -> None:
    assert [wrong for path in SOURCES if is_pure(path) for wrong in impurities(path)] == []


def test_one_technology_one_file() -> None:
    assert [wrong for path in SOURCES for wrong in strays(path)] == []


def test_wire_stands_on_the_standard_library_and_msgspec() -> None:
    allowed = {*sys.stdlib_module_names, "msgspec", "gpudeck"}
    found = {module.partition(".")[0] for _, _, module in imports(ROOT / "gpudeck/wire.py")}
    assert found <= allowed


def test_every_package_is_in_the_wheel() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    plain = tool["package-dir"]
    named = {folder: package for package, folder in plain.items()}
    nested = {named.get(program, "") + name_of(path.parent).removeprefix(program).replace("/", ".")
              for program in PROGRAMS for path in (ROOT / program).rglob("__init__.py")}
    assert set(tool["packages"]) - {"gpudeck", "gpudeck.assets"} == nested
    for package in tool["packages"]:
        program = ".".join(package.split(".")[:2])
        folder = plain[program] + package.removeprefix(program).replace(".", "/")
        assert (ROOT / folder).is_dir(), package


def test_sizes() -> None:
    files = [f"{name_of(path)} has {count} lines"
             for path in [*SOURCES, *TESTS]
             if (count := len(path.read_text().splitlines())) > MAX_FILE_LINES]
    functions = [wrong for path in [*SOURCES, *TESTS] for wrong in long_functions(path)]
    assert files + functions == []


@pytest.mark.parametrize(
    ("source", "check"),
    [
        ("from dashboard.fleet.state_machine import Room", crossing),
        ("from gpudeck.dashboard.fleet.state_machine import Room", crossing),
        ("from ... import wire", crossing),
        ("import time", impurities),
        ("def f():\n    import pynvml", strays),
        ("def f():\n" + "    x = 1\n" * 60, long_functions),
    ],
)
def test_each_rule_can_fail(source: str, check: object, monkeypatch: pytest.MonkeyPatch,
                            tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "agent" / "planted.py"
    path.parent.mkdir()
    path.write_text(source)
    assert callable(check)
    assert len(check(path)) == 1
