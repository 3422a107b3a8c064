"""T16: what a tenant calls a process, a user or a host harms nobody who looks at it."""

import http.client
import json
import re
import time
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest

from agent.telemetry.status_table import as_json, gpu_table, task_table
from gpudeck.contract.wire import Beat, Event, GpuFacts, Inventory, Task, Tasks, Use
from tests.crowd import Crowd, mixed
from tests.hostile import strings
from tests.integration.hubs import HubProcess, RawSocket, WireAgent, wait_for
from tests.integration.visitors import Visitor, add_person
from tests.patience import GIVE_UP_S

HOSTILE = strings()
OURS = rb'<script src="/assets/theme.js"></script>|value="[^"]*"'


class HostileAgent(WireAgent):
    """An agent whose GPUs, users and commands are named by `texts`."""

    def __init__(self, name: str, texts: list[str]) -> None:
        super().__init__(name, gpus=len(texts))
        self.facts = tuple(GpuFacts(f"GPU-{name}-{at}", at, text) for at, text in enumerate(texts))
        self.tasks = Tasks(
            True,
            tuple(Task(f"{name}:{at}:1", at + 1, 1, 1_000.0, text, text, "compute", text)
                  for at, text in enumerate(texts)),
            tuple(Use(f"{name}:{at}:1", at, 1e9, 1.0) for at in range(len(texts))))


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    assert len(HOSTILE) >= 500
    with HubProcess(tmp_path_factory.mktemp("hub") / "data") as hub:
        for at in range(0, len(HOSTILE), 200):
            agent = HostileAgent(f"n{at}", HOSTILE[at : at + 200])
            agent.connect(hub)
            agent.say(Inventory(1, agent.facts))
            agent.tick(agent.tasks)
        wait_for(lambda: len(hub.get("/api/v1/tasks?limit=1000")["items"]) == len(HOSTILE),
                 why="every task")
        yield hub


def test_the_api_gives_each_back_unharmed(hub: HubProcess) -> None:
    answer = hub.ask("/api/v1/tasks?limit=1000")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    tasks = answer.json["items"]
    assert {task["command"] for task in tasks} == set(HOSTILE)
    assert {task["user"] for task in tasks} == set(HOSTILE)
    assert {gpu["name"] for gpu in hub.get("/api/v1/gpus?limit=1000")["items"]} == set(HOSTILE)


def test_the_live_socket_gives_each_back_unharmed(hub: HubProcess) -> None:
    viewer = RawSocket(hub, "/live", hub.api_token)
    viewer.emit("watch", {"metric": "util_pct", "filter": ""})
    assert set(viewer.event("layout")["models"]) == set(HOSTILE)
    assert set(viewer.event("owners")["names"]) == set(HOSTILE)
    viewer.close()


def test_as_a_filter_each_is_an_answer_or_one_sentence(hub: HubProcess) -> None:
    headers = {"Authorization": f"Bearer {hub.api_token}"}
    with closing(http.client.HTTPConnection("127.0.0.1", hub.port,
                                            timeout=GIVE_UP_S)) as connection:
        for text in HOSTILE:
            for query in (text, f"task:'{text}'"):
                connection.request("GET", "/api/v1/gpus?limit=1&filter=" + quoted(query),
                                   headers=headers)
                answer = connection.getresponse()
                body = json.loads(answer.read())
                assert answer.status in (200, 400), query
                assert answer.status == 200 or is_plain(body["detail"]), query


def quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def is_plain(text: str) -> bool:
    return not any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") for char in text)


def test_in_a_path_each_is_not_there(hub: HubProcess) -> None:
    headers = {"Authorization": f"Bearer {hub.api_token}"}
    with closing(http.client.HTTPConnection("127.0.0.1", hub.port,
                                            timeout=GIVE_UP_S)) as connection:
        for text in HOSTILE:
            for kind in ("nodes", "gpus", "tasks", "users"):
                connection.request("DELETE" if kind == "users" else "GET",
                                   f"/api/v1/{kind}/{quoted(text)}", headers=headers)
                answer = connection.getresponse()
                body = json.loads(answer.read())
                assert answer.status in (404, 405), (kind, text)
                assert body["status"] == answer.status


def test_on_the_sign_in_page_each_is_text(hub: HubProcess) -> None:
    """A text is typed as a name, which is shown again, and given as a code."""
    add_person(hub, "alice")  # while there is nobody, there is no form
    time.sleep(0.6)
    visitor = Visitor(hub)
    page = visitor.ask("/sign-in")
    counts = page.body.count(b"<"), page.body.count(b'"')
    extra = {visitor.form("/sign-in", page, name="x", password="y").body.count(b"<") - counts[0]}
    for text in HOSTILE:  # sixty are looked at; the others are throttled, and shown all the same
        answers = [visitor.form("/sign-in", page, name=text, password="wrong wrong wrong"),
                   visitor.ask(f"/sign-in?code={quoted(text)}")]
        for answer in answers:
            assert answer.status in (200, 401, 410, 429)
            # One paragraph more than the bare page, whatever the text: no tag, no attribute.
            assert {answer.body.count(b"<") - counts[0]} == extra
            assert b"script" not in re.sub(OURS, b"", answer.body)
            assert "a=b" not in str(visitor.set_cookies)


def test_no_log_line_is_made_by_a_node(hub: HubProcess) -> None:
    crowd = Crowd(hub, mixed(HOSTILE, len(HOSTILE)))
    crowd.send(lambda _, node: Event(1, 0.0, node.command, None, None, node.detail))
    crowd.send(lambda _, node: Beat("failed", None, 0, 0, node.detail))
    wait_for(lambda: sum(node["reader"] is not None and node["reader"]["state"] == "failed"
                         for node in hub.get("/api/v1/nodes?limit=1000")["items"]) == len(HOSTILE),
             why="every beat")
    crowd.close()
    for line in hub.log.read_text(errors="strict").splitlines():
        assert line.startswith(("at=", "gpudeck hub on ", "Become the first admin")), line
        assert is_plain(line), line


def test_on_a_terminal_each_is_one_line_without_escapes(hub: HubProcess) -> None:
    tasks, gpus = (hub.get(f"/api/v1/{kind}?limit=1000")["items"] for kind in ("tasks", "gpus"))
    for table, items in ((task_table(tasks), tasks), (gpu_table(gpus), gpus)):
        assert len(table.split("\n")) == len(items) + 1
        assert all(char == "\n" or char.isprintable() for char in table)
    assert as_json(tasks).isascii()


def test_what_the_hub_says_of_a_name_it_does_not_take_is_plain(hub: HubProcess) -> None:
    for text in HOSTILE:
        person = {"name": "somebody-else", "role": "viewer", "groups": ["*"], "unix_names": []}
        for more in ({"name": text}, {"groups": [text]}, {"unix_names": [text]}):
            answer = hub.ask("/api/v1/users", "POST", body=json.dumps(person | more).encode(),
                             Content_Type="application/json")
            status, body = answer.status, answer.json
            if status == 201:
                assert hub.ask(f"/api/v1/users/{body['name']}", "DELETE").status == 204
            else:
                assert status == 400
                assert 10 < len(body["detail"]) < 450
                assert all(char.isprintable() for char in body["detail"]), body
