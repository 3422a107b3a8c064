"""Commands under way all the time: two nodes that act slowly, and a program that orders."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpudeck.contract.actions import Command, Reply
from gpudeck.contract.wire import Beat, decode_command
from tests.faults.fleet import FINAL
from tests.faults.test_hubs import Cut
from tests.integration.acting import DONE, several
from tests.integration.hubs import wait_for
from tests.integration.standbys import PairedHub

EVERY_S = 0.5
ACTS_FOR_S = 0.3


class SlowAgent(Cut):
    """Agent that takes a while for each command, so that one is under way most of the time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.does = self._act_slowly

    def _act_slowly(self, command: Command) -> list[Reply]:
        time.sleep(ACTS_FOR_S)
        now = time.time()
        return [Reply(command.command_id, 1, "accepted", now),
                Reply(command.command_id, 2, "acting", now),
                Reply(command.command_id, 3, "done", now, verified=DONE)]


@dataclass
class Commander:
    """Orders at the active hub, of one node."""

    name: str
    active: Callable[[], PairedHub | None]
    order_ids: list[str] = field(default_factory=list)
    failures: int = 0  # attempts that no hub took
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.agent = SlowAgent(self.name)
        self._hub: PairedHub | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop_ordering(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                if (hub := self.active()) is not None:
                    self.follow(hub)
                    self._order(hub)
            except Exception:  # of any kind: a hub that is killed breaks off anywhere
                self.failures += 1

    def follow(self, hub: PairedHub) -> None:
        """Be connected to this hub, and say there what runs."""
        agent = self.agent
        if hub is not self._hub or not agent.is_connected:
            agent.close()
            self._hub = None
            agent.connect(hub)
            self._hub = hub
        agent.show(several(2))
        agent.say(Beat("ok", 0.5, 0, 0, first_seq=min(agent.outbox, default=agent.seq + 1)))

    def _order(self, hub: PairedHub) -> None:
        target = f"{self.agent.node_id}/{random.choice(several(2).began).id}"
        preview = _post(hub, "previews", {"action": "notify", "targets": [target],
                                          "params": {"text": "please save"}})
        if preview.get("refused", True):
            self.failures += 1
            return
        [command] = _post(hub, "commands", {"preview": preview["id"], "reason": "a test"})["items"]
        self.order_ids.append(command["id"])

    @property
    def duplicates(self) -> set[str]:
        """Return commands that were sent, or done, more than once."""
        orders = Counter(decode_command(message.body).command_id for message in self.agent.commands)
        return {command_id for counts in (orders, Counter(self.agent.executed))
                for command_id, times in counts.items() if times > 1}

    def close(self) -> None:
        self._stop.set()
        self.agent.close()


def _post(hub: PairedHub, path: str, body: Any) -> Any:
    answer = hub.ask(f"/api/v1/{path}", "POST", body=json.dumps(body).encode(),
                     Content_Type="application/json")
    assert answer.status in (201, 202), (answer.status, answer.body)
    return answer.json


def list_commands(hub: PairedHub) -> dict[str, Any]:
    """Wait until each command that the hub has ever recorded has an end state, or for a minute;
    return all of them by id."""
    def look() -> dict[str, Any]:
        commands, cursor = dict[str, Any](), ""
        while True:
            page = hub.get(f"/api/v1/commands?limit=1000{cursor}")
            commands |= {item["id"]: item for item in page["items"]}
            if page["next"] is None:
                return commands
            cursor = f"&cursor={page['next']}"

    deadline = time.monotonic() + 60.0
    wait_for(lambda: time.monotonic() > deadline
             or all(item["state"] in FINAL for item in look().values()))
    return look()
