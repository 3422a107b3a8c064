"""A capability is taken out of the hub by deleting its folder and its row: the rest starts, serves,
and passes its own tests."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Capability, a route of it that is gone then, and tests of others that go on passing.
TAKEN_OUT = (
    ("sites", "/api/v1/sites", "tests/unit/dashboard/fleet"),
    ("mirror", None, "tests/unit/dashboard/nodes"),
    ("prometheus", "/metrics", "tests/unit/dashboard/quotas"),
)
START = """
import json, sys
from pathlib import Path
from flask import Flask
from werkzeug.test import Client
from dashboard.app import Hub
from dashboard.settings import HubSettings
from dashboard.state import HubState
folder = Path(sys.argv[1])
folder.mkdir(mode=0o700)
state = HubState.open(folder)
hub = Hub(HubSettings(("127.0.0.1", 8050), folder), state, 8050)
rules = sorted({rule.rule for rule in hub.core.get(Flask).url_map.iter_rules()})
health = Client(hub.wsgi).get("/healthz", base_url="http://127.0.0.1:8050").status_code
hub.core.close()
state.close()
print(json.dumps([rules, health, "dashboard." + sys.argv[2] in sys.modules]))
"""


def rest(folder: Path, name: str) -> dict[str, str]:
    """Make a checkout without the capability; return the environment to run it in."""
    for part in ("agent", "gpudeck", "assets", "docs", "pyproject.toml"):
        (folder / part).symlink_to(ROOT / part)
    for part in ("dashboard", "tests"):  # not a link: pytest would import what it leads to
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(folder / "dashboard" / name)
    table = folder / "dashboard/capabilities.py"
    rows = table.read_text().splitlines(keepends=True)
    rows_left = [row for row in rows if not row.startswith(f'    "{name}":')]
    assert len(rows_left) == len(rows) - 1
    table.write_text("".join(rows_left))
    return os.environ | {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize(("name", "route", "other_tests"), TAKEN_OUT,
                         ids=[row[0] for row in TAKEN_OUT])
def test_the_rest_starts_and_passes_its_own_tests(name: str, route: str | None, other_tests: str,
                                                  tmp_path: Path) -> None:
    environment = rest(tmp_path, name)
    result = subprocess.run([sys.executable, "-c", START, str(tmp_path / "data"), name],
                            cwd=tmp_path, env=environment, capture_output=True, text=True,
                            check=False)
    assert result.returncode == 0, result.stderr
    rules, health, is_there = json.loads(result.stdout.splitlines()[-1])
    assert route not in rules
    assert "/api/v1/gpus" in rules
    assert not is_there
    assert health == 200
    outcome = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider",
                             "-m", "test", other_tests], cwd=tmp_path, env=environment,
                            capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout[-3_000:]
