"""Rules of docs/internals/architecture.md, checked by reading the source."""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
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

# What is in a folder imports only from floors below its own. What stands on one floor are siblings.
FLOORS = {
    "agent": ("readings", "runtime", "tasks link", "journal slurm kubernetes", "backends",
              "capability", "schedulers hosts settings limits", "reader telemetry", "actions",
              "quotas", "pool doctor conversation", "node_config", "node", "cli",
              "simulator top", "__main__"),
    "dashboard": ("errors trusted_networks public_url capabilities", "settings", "runtime", "state",
                  "composition", "web", "access", "audit", "history", "fleet mirror", "nodes sites",
                  "imports actions", "quotas", "pool", "jobs", "insight", "alerts", "automation",
                  "notifications", "live", "heartbeat", "openapi", "prometheus pages", "app",
                  "standby", "serve", "demo", "cli", "__main__"),
    "gpudeck": ("errors markup measures mig rate simulated_user",
                "components language network system", "audit pages pool.core", "contract",
                "cli prometheus words", "estimate settings", "client", "pool", "service"),
    "dashboard/history": ("storage", "columns", "ingest", "files", "reads",
                          "views usage_names inventory mps_usage prometheus", "report_views",
                          "api archive_api", "wiring"),
}
FLOOR = {(folder, package): number for folder, floors in FLOORS.items()
         for number, packages in enumerate(floors) for package in packages.split()}

# The same for folders of modules; those of `assets` itself stand above all.
ASSET_FLOORS = ("parts vendor", "actions figures live", "reading",
                "alerts history pool quotas tasks", "fleet jobs settings", "charts", "components")
ASSET_FLOOR = {folder: number for number, folders in enumerate(ASSET_FLOORS)
               for folder in folders.split()}
MODULES = sorted(path for path in (ROOT / "assets").rglob("*.mjs") if "vendor" not in path.parts)

IMPURE_MODULES = frozenset((
    "time", "random", "os", "socket", "threading", "sqlite3", "logging", "subprocess", "secrets",
    "asyncio", "select", "signal", "urllib", "flask", "dash", "socketio", "flask_socketio",
    "gevent", "psutil", "pynvml", "requests",
))

# Values without any effect, from modules that are otherwise not pure.
PURE_MODULES = frozenset(("urllib.parse", "dash.development.base_component"))

# One outside technology, one file. A folder stands for all files in it; `store.py` for the one of
# each capability.
HOME = {
    "pynvml": ("agent/backends/nvml",),
    "flask_socketio": ("dashboard/web/bounded_socket.py",),
    # A node carries neither of these, nor what they bring.
    "socketio": ("dashboard/web/bounded_socket.py", "bench/ingest.py"),
    "engineio": ("dashboard/web/bounded_socket.py",),
    "dash": ("dashboard/pages", "gpudeck/components.py", "gpudeck/markup.py"),
    "plotly": ("dashboard/pages", "widget/plot.py"),
    "duckdb": ("dashboard/history/reads/database.py",),
    "pyarrow": ("dashboard/history/files/parquet.py", "dashboard/history/files/row_index.py",
                "dashboard/history/columns/arrow_columns.py"),
    "sqlite3": ("gpudeck/system/database_errors.py", "agent/link/outbox_file.py",
                "agent/journal/store.py",
                "dashboard/runtime/sqlite_state.py", "dashboard/actions/standing_store.py",
                "gpudeck/audit/file.py",
                *(f"dashboard/{room}/store.py" for room in (
                    "access", "actions", "alerts", "audit", "automation", "jobs", "nodes",
                    "notifications", "pool", "quotas"))),
    "psycopg": tuple(f"dashboard/runtime/postgres_{part}.py" for part in (
        "session", "hold", "state")),
    "cryptography": ("gpudeck/network/keys.py",),
    "yaml": ("gpudeck/language/strict_yaml.py",),
    "smtplib": ("dashboard/notifications/mail.py",),
    "argon2": ("dashboard/access/passwords.py",),
    "anywidget": ("widget",),
    "authlib": ("dashboard/access/oidc/provider.py",),
    "joserfc": ("dashboard/access/oidc/provider.py",),
}

# What the routes of every capability have in common: how requests are read and answered, who asks,
# who may, and what of the fleet they see.
OF_ALL_APIS = ("errors", "web", "access.policy", "access.requests", "access.routes",
               "fleet.visibility")
# What the routes of one capability take from another besides, and why that is right.
API_EXCEPTIONS = {
    ("actions/api.py", "fleet.fleet"): "MPS, limits, MIG and repairs are shown from the live "
                                       "picture by functions of this package",
    ("actions/api.py", "fleet.node_names"): "a node may be named by its host",
    ("fleet/events_api.py", "history.reads.protocol"): "older events are in history, and History "
                                                       "is the only way to read it",
    ("fleet/past_api.py", "history.reads"): "the fleet's past is history, read by its protocol and "
                                            "answered in its file formats",
    ("fleet/past_api.py", "history.columns"): "what a query of the past may cost is counted in "
                                              "history's blocks",
    ("nodes/api.py", "fleet.members"): "an enrolment is a record of the fleet",
    ("nodes/api.py", "fleet.state_machine"): "a changed node is answered as the live picture has "
                                             "it",
    ("nodes/api.py", "fleet.views"): "a changed node is answered as the live picture has it",
    ("openapi/api.py", "access"): "errors of sign-in become answers",
    ("openapi/api.py", "alerts.core.rule"): "an invalid rule becomes an answer",
    ("openapi/api.py", "runtime.state_store"): "a lost database becomes an answer",
    ("pool/api.py", "audit.recorder"): "a refused claim is recorded with the caller",
}

WIRE = "gpudeck/contract/wire.py"  # its names are frozen

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_METHODS = 20
DIALECT = frozenset((
    "Desk", "Hand", "Deed", "Place", "Scene", "Book", "Line", "Kept", "Told", "Here", "Beside",
    "Known", "Seen", "Look", "Wanted", "Held", "Given", "Marked", "Shown", "Sorry", "Meant",
    "Noted",
))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def imports(path: Path) -> tuple[tuple[int, int, str, tuple[str, ...]], ...]:
    """(line, level, module, names) of every import, wherever it stands."""
    rows: list[tuple[int, int, str, tuple[str, ...]]] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            rows += [(node.lineno, 0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            rows.append((node.lineno, node.level, node.module or "", names))
    return tuple(rows)


def package_in(parts: tuple[str, ...], depth: int = 1) -> str:
    """`dashboard/alerts/core/rule.py` is of `alerts`, `dashboard/app.py` of `app`. What both
    programs decide by is below what else they share of the pool."""
    if parts[:3] == ("gpudeck", "pool", "core"):
        return "pool.core"
    return parts[depth].removesuffix(".py") if len(parts) > depth else ""


def imported(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, dotted path from the program on) of imports within a program, one for each name."""
    here = path.relative_to(ROOT).parts[:-1]
    for line, level, module, names in imports(path):
        parts = tuple(filter(None, module.split(".")))
        if level and level <= len(here):
            yield from ((line, (*here[: len(here) - level + 1], *parts, name)) for name in names)
        elif parts[:1] == here[:1] == ("gpudeck",):
            yield from ((line, (*parts, name)) for name in names)


def is_nested(module: str) -> bool:
    return re.match(r"gpudeck\.(agent|dashboard|widget|notebook)(\.|$)", module) is not None


def crossing(path: Path) -> list[str]:
    """Imports that break the rule between programs (3.1)."""
    program = name_of(path).partition("/")[0]
    depth = len(path.relative_to(ROOT).parts) - 1
    wrong = []
    for line, level, module, _ in imports(path):
        first = module.partition(".")[0]
        if level == 0 and (first in PROGRAMS or is_nested(module)):
            wrong.append(f"{name_of(path)}:{line} imports {module}; across programs only gpudeck.*")
        if level > depth and program in PROGRAMS:
            wrong.append(f"{name_of(path)}:{line} climbs out of {program}/")
        if program == "gpudeck" and level > 0:
            wrong.append(f"{name_of(path)}:{line} is relative; gpudeck says from gpudeck.x import")
    return wrong


def climbing(path: Path) -> list[str]:
    """Imports from the same floor or from above (3.2), for types too."""
    return [wrong for folder in FLOORS if path.is_relative_to(ROOT / folder)
            for wrong in climbing_in(folder, path)]


def climbing_in(folder: str, path: Path) -> list[str]:
    depth = len(Path(folder).parts)
    package = package_in(path.relative_to(ROOT).parts, depth)
    if package == "__init__":
        return []
    if (folder, package) not in FLOOR:
        return [f"{name_of(path)}: {package} has no floor in tests/test_layout.py"]
    wrong = []
    for line, target in imported(path):
        other = package_in(target, depth)
        if (target[:depth] != Path(folder).parts or other == package
                or (folder, other) not in FLOOR):
            continue
        if FLOOR[folder, other] >= FLOOR[folder, package]:
            wrong.append(f"{name_of(path)}:{line} imports from {other}, which is not below "
                         f"{package}")
    return wrong


def climbing_modules(path: Path) -> list[str]:
    """Imports of JavaScript from a folder that is not below, or of a file that is not there."""
    assets, wrong = ROOT / "assets", []

    def floor(module: Path) -> int:
        parts = module.relative_to(assets).parts
        return ASSET_FLOOR[parts[0]] if len(parts) > 1 else len(ASSET_FLOORS)

    for target in re.findall(r"""(?:from|import)\s*\(?\s*["'](\.{1,2}/[^"']+)["']""",
                             path.read_text()):
        module = (path.parent / target).resolve()
        if not module.is_file():
            wrong.append(f"{name_of(path)} imports {target}, which is not there")
        elif module.parent != path.parent and floor(module) >= floor(path):
            wrong.append(f"{name_of(path)} imports {target}, which is not below it")
    return wrong


def is_pure(path: Path) -> bool:
    text = ast.get_docstring(tree_of(path)) or ""
    return "core" in path.relative_to(ROOT).parts[:-1] or re.search(r"\bPure\.", text) is not None


def impurities(path: Path) -> list[str]:
    if not is_pure(path):
        return []
    return [
        f"{name_of(path)}:{line} imports {module}"
        for line, level, module, _ in imports(path)
        if level == 0 and module.partition(".")[0] in IMPURE_MODULES and (
            module not in PURE_MODULES)
    ]


def strays(path: Path) -> list[str]:
    """Outside technologies imported away from home (3.4)."""
    name = name_of(path)
    return [
        f"{name}:{line} imports {module}; its home is {HOME[module.partition('.')[0]]}"
        for line, level, module, _ in imports(path)
        if level == 0
        and module.partition(".")[0] in HOME
        and not any(name == home or name.startswith(f"{home}/")
                    for home in HOME[module.partition(".")[0]])
    ]


def foreign_stores(path: Path) -> list[str]:
    """A service that reaches into another capability's store (3.5)."""
    program, package = name_of(path).partition("/")[0], package_in(path.relative_to(ROOT).parts)
    if path.name != "service.py" and not path.name.endswith("_service.py"):
        return []
    return [f"{name_of(path)}:{line} imports the store of {package_in(target)}"
            for line, target in imported(path)
            if package_in(target) != package and program == "dashboard" and "store" in target]


def of_other_capabilities(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of imports by routes from other capabilities, but for OF_ALL_APIS."""
    parts = path.relative_to(ROOT).parts
    if parts[0] != "dashboard" or len(parts) < 3 or re.search(r"(^|_)api\.py$", parts[-1]) is None:
        return
    for line, target in imported(path):
        module = ".".join(target[1:])
        if target[1] != parts[1] and not any(
                f"{module}.".startswith(f"{shared}.") for shared in OF_ALL_APIS):
            yield line, module


def meddling_apis(path: Path) -> list[str]:
    """Routes that do another capability's work (3.5): their own services are for that."""
    own = path.relative_to(ROOT / "dashboard").as_posix() if path.is_relative_to(
        ROOT / "dashboard") else ""
    return [f"{name_of(path)}:{line} imports {module}"
            for line, module in of_other_capabilities(path)
            if not any(name == own and f"{module}.".startswith(f"{exception}.")
                       for name, exception in API_EXCEPTIONS)]


def set_from_outside(path: Path) -> list[str]:
    """Attributes of a part that its composer sets after it was built (3.6)."""
    wrong = []
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            for element in target.elts if isinstance(target, ast.Tuple) else [target]:
                if (isinstance(element, ast.Attribute) and isinstance(element.value, ast.Attribute)
                        and isinstance(element.value.value, ast.Name)
                        and element.value.value.id == "self"
                        and not element.value.attr.startswith("_")):
                    wrong.append(f"{name_of(path)}:{node.lineno} sets {ast.unparse(element)}")
    return wrong


def long_functions(path: Path) -> list[str]:
    return [
        f"{name_of(path)}:{node.lineno} {node.name} has {length} lines"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]


def large_classes(path: Path) -> list[str]:
    return [
        f"{name_of(path)}:{node.lineno} {node.name} has {count} methods"
        for node in classes(path)
        if (count := sum(isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
                         for member in node.body)) > MAX_METHODS
    ]


def dialect(path: Path) -> list[str]:
    return [f"{name_of(path)}:{node.lineno} {node.name} does not say what it is"
            for node in classes(path)
            if node.name.strip("_") in DIALECT and name_of(path) != WIRE]


def test_there_is_something_to_read() -> None:
    assert len(SOURCES) > 20


# Some composers of one program and of each test are what sets things.
COMPOSERS = (ROOT / "dashboard/app.py", ROOT / "agent/node.py",
             *(path for path in SOURCES if path.name == "wiring.py"))


@pytest.mark.parametrize(("check", "paths"), [
    (crossing, SOURCES), (climbing, SOURCES), (impurities, SOURCES), (strays, SOURCES),
    (foreign_stores, SOURCES), (meddling_apis, SOURCES), (dialect, SOURCES),
    (large_classes, SOURCES), (long_functions, [*SOURCES, *TESTS]),
    (set_from_outside, COMPOSERS), (climbing_modules, MODULES),
], ids=lambda parameter: getattr(parameter, "__name__", "files"))
def test_the_house(check: Callable[[Path], list[str]], paths: list[Path]) -> None:
    assert [wrong for path in paths for wrong in check(path)] == []


def test_each_exception_of_an_api_is_used() -> None:
    used = {(path.relative_to(ROOT / "dashboard").as_posix(), f"{module}.")
            for path in SOURCES for _, module in of_other_capabilities(path)}
    assert [key for key in API_EXCEPTIONS if not any(
        name == key[0] and module.startswith(f"{key[1]}.") for name, module in used)] == []


def test_tests_never_use_the_nested_names() -> None:
    assert [
        f"{name_of(path)}:{line} {module}"
        for path in TESTS
        for line, _, module, _ in imports(path)
        if is_nested(module)
    ] == []


def test_no_class_name_twice_in_a_program() -> None:
    count = Counter((name_of(path).partition("/")[0], node.name)
                    for path in SOURCES for node in classes(path))
    assert [name for name, number in count.items() if number > 1] == []


def test_wire_stands_on_the_standard_library_and_msgspec() -> None:
    allowed_modules = {*sys.stdlib_module_names, "msgspec", "gpudeck"}
    modules = {module.partition(".")[0] for _, _, module, _ in imports(ROOT / WIRE)}
    assert modules <= allowed_modules


def test_every_package_is_in_the_wheel() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    plain = tool["package-dir"]
    outer = {folder: package for package, folder in plain.items()}
    nested = {outer.get(program, "") + name_of(path.parent).removeprefix(program).replace("/", ".")
              for program in (*PROGRAMS, "gpudeck")
              for path in (ROOT / program).rglob("__init__.py")}
    assert set(tool["packages"]) - {"gpudeck.assets"} == nested
    for package in tool["packages"]:
        program = ".".join(package.split(".")[:2])
        program = program if program in plain else "gpudeck"
        folder = plain[program] + package.removeprefix(program).replace(".", "/")
        assert (ROOT / folder).is_dir(), package


def test_files_are_short() -> None:
    assert [f"{name_of(path)} has {count} lines"
            for path in [*SOURCES, *TESTS]
            if (count := len(path.read_text().splitlines())) > MAX_FILE_LINES] == []


def test_tests_of_pages_give_up_by_one_setting() -> None:
    """tests/patience.py has it, and the fixture `browser` gives it to Playwright."""
    own = re.compile(r"set_default_\w*timeout|set_options\(|\.(wait_for|goto)\w*\(.*timeout=")
    assert [f"{name_of(path)}: {line.strip()}"
            for folder in ("browser", "notebook") for path in (ROOT / "tests" / folder).glob("*.py")
            for line in path.read_text().splitlines() if own.search(line)] == []


@pytest.mark.parametrize(
    ("file", "source", "check"),
    [
        ("agent/planted.py", "from dashboard.fleet.fleet import Fleet", crossing),
        ("agent/planted.py", "from gpudeck.dashboard.fleet.fleet import Fleet", crossing),
        ("agent/planted.py", "from ... import wire", crossing),
        ("dashboard/web/planted.py", "from ..fleet.fleet import Fleet", climbing),
        ("dashboard/web/planted.py", "def f():\n    from ..fleet import fleet", climbing),
        ("dashboard/pages/planted.py", "from ..prometheus import page", climbing),
        ("dashboard/unheard_of/planted.py", "", climbing),
        ("gpudeck/measures/planted.py", "from gpudeck.contract.wire import Task", climbing),
        ("gpudeck/contract/planted.py", "from gpudeck.pool import claim", climbing),
        ("dashboard/history/columns/planted.py", "from ..reads.embedded import Engine", climbing),
        ("agent/planted.py", '"""Guards. Pure."""\nimport time', impurities),
        ("dashboard/alerts/core/planted.py", "from random import random", impurities),
        ("agent/planted.py", "def f():\n    import pynvml", strays),
        ("dashboard/quotas/service.py", "from ..alerts.store import AlertsStore", foreign_stores),
        ("dashboard/quotas/api.py", "from ..fleet.fleet import Fleet", meddling_apis),
        ("dashboard/fleet/past_api.py", "from ..history.files.store import HistoryStore",
         meddling_apis),
        ("dashboard/jobs/api.py", "def f():\n    from ..pool.service import PoolService",
         meddling_apis),
        ("dashboard/planted.py", "class A:\n    def f(self):\n        self.acts.held = 1",
         set_from_outside),
        ("agent/planted.py", "def f():\n" + "    x = 1\n" * 60, long_functions),
        ("agent/planted.py", "class Desk:\n    pass", dialect),
        ("assets/parts/planted.mjs", 'import { Nothing } from "./nothing.mjs";', climbing_modules),
        ("agent/planted.py", "class Big:\n" + "".join(f"    def f{n}(self): ...\n"
                                                      for n in range(21)), large_classes),
    ],
)
def test_each_rule_can_fail(file: str, source: str, check: Callable[[Path], list[str]],
                            monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert len(check(path)) == 1
