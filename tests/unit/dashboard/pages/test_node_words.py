"""Words about a node's agent: Settings, made by the hub, and the browser's drawer say the same."""

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

from playwright._impl._driver import compute_driver_executable

from dashboard.pages.node_words import READER, agent_words, reader_words, refused_words

MODULE = Path(__file__).resolve().parents[4] / "assets" / "fleet" / "node_words.mjs"
PROGRAM = f"""
import {{ agentWords, readerWords, refusedWords }} from {json.dumps(str(MODULE))};
const nodes = JSON.parse(process.argv[1]);
console.log(JSON.stringify(nodes.map((node) => [
    agentWords(node), readerWords(node), refusedWords(node)])));
"""


def a_node() -> dict[str, Any]:
    choose = random.choice
    cost = {"cpu_pct": choose((None, random.uniform(0, 250))),
            "memory_bytes": choose((None, random.uniform(1e6, 3e9))),
            "read_s": choose((None, random.uniform(0, 0.02), random.uniform(0, 40))),
            "outbox_bytes": choose((None, random.uniform(0, 1e9)))}
    return {
        "agent_version": choose(("0.1.0", "0.2.0.dev0")), "cost": choose((None, cost)),
        "unknown_types": choose(([], ["A"], ["A", "B"])),
        "pending": choose((None, 0, 20, 21, random.randrange(10**6))),
        "dropped": choose((None, 0, 1, random.randrange(10**6))),
        "reader": choose((None, {"state": choose((*READER, "new")),
                                 "detail": choose(("", "x y"))})),
        # Of another day too; September has another short name in browsers.
        "refused": choose((None, {"until": choose((time.time(), random.randrange(
            1_764_000_000, 1_764_400_000))), "why": "too many names"})),
    }


def test_both_say_the_same() -> None:
    nodes = [a_node() for _ in range(500)]
    node, _ = compute_driver_executable()  # Playwright brings one
    reply = subprocess.run([node, "--input-type=module", "-e", PROGRAM, json.dumps(nodes)],
                           capture_output=True, text=True, check=True, env={"TZ": "UTC"})
    assert [[agent_words(one), reader_words(one), refused_words(one, time.time(), "UTC")]
            for one in nodes] == json.loads(reply.stdout)
