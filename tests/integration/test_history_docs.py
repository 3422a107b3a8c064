"""The examples of docs/history.md, run as they stand while a hub writes."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from dashboard.history.reads.embedded import EmbeddedHistory
from tests.integration.hubs import HubProcess, WireAgent, one_task
from tests.unit.histories import Source

PAGE = Path(__file__).resolve().parents[2] / "docs" / "history.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)


def test_the_examples_read_the_files_while_the_hub_writes(tmp_path: Path) -> None:
    data = tmp_path / ".local" / "state" / "gpudeck" / "hub"
    data.mkdir(mode=0o700, parents=True)
    source = some_past(data / "history")
    with HubProcess(data) as hub:
        agent = WireAgent("n1")
        agent.connect(hub)
        outputs = []
        for example in EXAMPLES:
            agent.tick(one_task())
            result = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True,
                                    env=os.environ | {"HOME": str(tmp_path)}, timeout=60,
                                    check=False)
            assert result.returncode == 0, result.stderr
            outputs.append(result.stdout)
    assert len(outputs) == 3
    assert all(uuid in outputs[0] for uuid in source.all_uuids)
    assert "user-n0" in outputs[1]
    assert re.search(r"\d+ files, \d+ rows", outputs[2])


def some_past(folder: Path) -> Source:
    source, history = Source(1), EmbeddedHistory(folder)
    history.open()
    history.append(source.greetings(), 1)
    begin = int(time.time()) - 2_000
    for t in range(begin, begin + 700):
        history.append(source.second(t), 1)
        if t % 60 == 0:
            history.store.maintain(t)
    return source
