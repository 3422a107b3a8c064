"""docs/client.md: its blocks run one after the other, as a reader types them; its table has every
method of the client."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gpudeck.client.hub import Client
from tests.integration.acting import ActingAgent, several
from tests.integration.hubs import HubProcess, wait_for

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
BUILDERS = {"from_flags", "over"}  # ways to a client, and not what it does


def test_the_blocks_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HubProcess(tmp_path / "data") as hub:
        monkeypatch.setenv("GPUDECK_TOKEN", hub.api_token)
        agent = ActingAgent("c0")
        agent.connect(hub)
        agent.show(several(1))
        wait_for(lambda: hub.get("/api/v1/tasks")["items"], why="the task")
        names: dict[str, Any] = {}

        def output(block: str) -> str:
            with redirect_stdout(StringIO()) as text:
                exec(block.replace("https://deck.example.org", hub.url), names)
            return text.getvalue()

        connect, read, act, errors = BLOCKS
        assert output(connect).endswith(f" at {hub.url}\n")
        agent.tick()
        output(read)
        host = agent.caller.said.host
        first, _, outcome = output(act).splitlines()
        assert first == f"alice python train0.py on {host}"
        assert outcome.startswith("done ")
        assert len(agent.executed) == 1
        assert [gpu.index for gpu in names["preview"].items[0].gpus] == [agent.facts[0].index]
        assert "400" in output(errors)
        agent.close()


def test_every_method_is_in_the_table() -> None:
    listed = set(re.findall(r"`(\w+)\(", "\n".join(
        line for line in PAGE.splitlines() if line.startswith("| `"))))
    assert listed == {name for name in dir(Client) if not name.startswith("_")} - BUILDERS
