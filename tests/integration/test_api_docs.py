"""Examples of docs/api.md, run as they stand by bash and curl against a real hub."""

import json
import os
import re
import subprocess
from pathlib import Path

from tests.integration.hubs import HubProcess, WireAgent, wait_for
from tests.machine import required

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_examples_work(tmp_path: Path) -> None:
    required("curl")
    blocks = re.findall(r"^```sh\n(.+?)^```", PAGE.read_text(), re.M | re.S)
    with HubProcess(tmp_path / "data") as hub:
        agent = WireAgent("n0", gpus=3)
        agent.connect(hub)
        agent.tick()
        wait_for(lambda: len(hub.get("/api/v1/gpus")["items"]) == 3, why="the GPUs")
        listed, problem, twice = (run(block, hub) for block in blocks)
        assert {"items", "next"} <= json.loads(listed).keys()
        assert json.loads(problem)["status"] == 400
        first, second = re.findall(r"{.+?}(?={|$)", twice)
        assert first == second
        assert json.loads(first)["group"] == "lab"
        groups = [place["group"] for place in hub.get("/api/v1/enrolments")["items"]]
        assert groups.count("lab") == 1


def run(block: str, hub: HubProcess) -> str:
    words = {**os.environ, "GPUDECK_URL": hub.url, "GPUDECK_TOKEN": hub.api_token}
    return subprocess.run(["bash", "-euc", block], env=words, check=True, capture_output=True,
                          text=True, timeout=20).stdout
