"""T32, T33: no secret in any output of a whole run, and no debugger."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.contract.wire import encode
from gpudeck.network.keys import EnrolmentToken
from tests.integration.hubs import (
    REPOSITORY,
    Answer,
    Caller,
    RawSocket,
    StartedHub,
    WireAgent,
    greet,
    one_task,
    wait_for,
)
from tests.integration.visitors import Visitor, add_program, link_for

PASSWORD = "canary in the coal mine"


def test_secrets_are_in_no_output(tmp_path: Path) -> None:
    """A person's whole life on a hub, with everything wrong tried too; then everything that was
    said, logged, kept or visible to others is searched."""
    with StartedHub(tmp_path / "data") as hub:
        outputs: list[bytes] = []

        def collect(answer: Answer) -> None:
            outputs.append(answer.body)
            outputs.append(repr({name: value for name, value in answer.headers.items()
                                 if name != "Set-Cookie"}).encode())
        visitor = Visitor(hub)
        first_code = hub.sign_in_url.partition("code=")[2]
        form = visitor.ask(hub.sign_in_url)
        wrong = visitor.form("/sign-in/first", form, name="root", password=PASSWORD, again="no")
        # The form that is shown again carries the code on to the next try.
        outputs.append(wrong.body.replace(first_code.encode(), b"", 1))
        assert visitor.form("/sign-in/first", form, name="root", password=PASSWORD,
                            again=PASSWORD).status == 303
        session = visitor.cookies[visitor.cookie_name("session")]
        collect(visitor.send("/api/v1/fresh", {"password": PASSWORD, "extra": PASSWORD}))
        collect(visitor.send("/api/v1/fresh", {"password": PASSWORD}))
        renewed = visitor.cookies[visitor.cookie_name("session")]
        token = add_program(hub, "admin")
        code = link_for(hub, "root").partition("code=")[2]
        agent = WireAgent("n1")
        agent.connect(hub)
        agent.tick(one_task())
        wait_for(lambda: hub.get("/api/v1/tasks")["items"], why="the task")
        enrolment = hub.ask("/api/v1/enrolments", "POST", token, b"{}",
                            Content_Type="application/json").json
        places = [EnrolmentToken.read(enrolment["token"]), hub.token()]
        reply = greet(RawSocket(hub, "/agent"), Caller("n2"), places[0])
        outputs.append(encode(reply))
        rejection = greet(RawSocket(hub, "/agent"), Caller("n3"), places[0])
        outputs.append(encode(rejection))
        for path in ("enrolments", "me", "users", "tokens", "sessions", "sign-ins", "nodes",
                     "nothing", "gpus"):
            collect(hub.ask(f"/api/v1/{path}", token=token))
            collect(hub.ask(f"/api/v1/{path}?filter=({token}", token=token))
            collect(hub.ask(f"/api/v1/{path}", token=token + "x"))
        collect(hub.ask("/api/v1/users", "POST", token, b'{"name": "' + PASSWORD.encode(),
                        Content_Type="application/json"))
        collect(Visitor(hub).sign_in("root", PASSWORD + "x"))
        collect(visitor.ask(f"/sign-in?code={code}"))
        collect(visitor.ask(f"/sign-in?code={code}"))
        process = Path(f"/proc/{hub.process.pid}")
        outputs += [(process / "cmdline").read_bytes(), (process / "environ").read_bytes()]
        assert hub.stop() == 0
        files = [path for path in hub.folder.rglob("*")
                 if path.is_file() and path.name != "api.token"]
        assert any(path.name == "state.db" for path in files)
        outputs += [path.read_bytes() for path in files]
        log = hub.log.read_bytes()
        # Printed at the start, for the one who starts it; it was used up, and dies anyhow.
        outputs.append(log.replace(first_code.encode(), b"", 1))
        secrets = [PASSWORD, session, renewed, token, code, first_code, hub.api_token,
                   *(place.text.split(".")[2] for place in places)]
        for secret in (*map(str.encode, secrets), *(place.seed for place in places)):
            for output in outputs:
                assert secret not in output, (secret, output[:300])


@pytest.mark.parametrize("value", ["1", "true"])
def test_a_hub_with_a_debugger_does_not_start(tmp_path: Path, value: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dashboard", "hub", "--bind", "127.0.0.1:0", "--data",
         str(tmp_path / "data")], cwd=REPOSITORY, env=os.environ | {"FLASK_DEBUG": value},
        capture_output=True, text=True, timeout=20, check=False)
    assert (run.returncode, "debugger" in run.stderr) == (2, True)
    assert not (tmp_path / "data").exists()


def test_an_error_shows_nothing_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                               ) -> None:
    monkeypatch.setenv("DASH_DEBUG", "1")
    monkeypatch.setenv("WERKZEUG_DEBUG_PIN", "off")
    with StartedHub(tmp_path / "data") as hub:
        visitor = Visitor(hub)
        visitor.form("/sign-in/first", visitor.ask(hub.sign_in_url), name="root",
                     password=PASSWORD, again=PASSWORD)
        for path in ("/console", "/?__debugger__=yes&cmd=resource&f=style.css",
                     "/_dash-component-suites/dash/no-such-file.js", "/%ff", "/api/v1/nodes/%ff"):
            answer = visitor.ask(path)
            assert answer.status in (200, 404), path
            for word in (b"Traceback", b"werkzeug", b"debugger", b"site-packages"):
                assert word not in answer.body, path
        assert "Traceback" not in hub.log.read_text()
