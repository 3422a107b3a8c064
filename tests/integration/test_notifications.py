"""A real hub notifies real sinks: each group once, and at least once whatever happens between."""

import json
import secrets
import time
from collections.abc import Iterator
from email import message_from_string
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from dashboard.alerts.core.firing_alerts import Alert, AlertTarget
from dashboard.notifications.grouping import NotificationTiming
from dashboard.notifications.receiver_directory import ReceiverDirectory
from dashboard.notifications.receivers import Receiver
from dashboard.notifications.service import recovered_groups
from dashboard.notifications.store import NotificationsStore
from dashboard.state import HubState
from tests.fakes.smtp import MailSink
from tests.fakes.webhook import HttpSink
from tests.integration.full_agent import Teller
from tests.integration.hubs import HubProcess, one_task, wait_for
from tests.integration.test_alerts import alerts, ask, host_of, hot, new_teller, put, telling
from tests.ports import free_port

QUICK = ("--notice-wait-s", "1", "--notice-interval-s", "1")


@pytest.fixture(name="post", scope="module")
def _post() -> Iterator[MailSink]:
    with MailSink() as sink:
        yield sink


@pytest.fixture(name="hub", scope="module")
def _hub(tmp_path_factory: pytest.TempPathFactory, post: MailSink) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("notices") / "data"
    with HubProcess(folder, 0, *QUICK, "--smtp-host", "127.0.0.1", "--smtp-port", str(post.port),
                    "--smtp-from", "deck@example.org", "--smtp-tls", "none") as hub:
        yield hub
        assert "Traceback" not in hub.log.read_text()


@pytest.fixture(name="sink")
def _sink() -> Iterator[HttpSink]:
    with HttpSink() as sink:
        yield sink


def receiver(hub: HubProcess, **more: Any) -> Any:
    answer = ask(hub, "POST", "receivers", {"name": "ops", "kind": "webhook"} | more)
    assert answer.status == 201, answer.body
    return answer.json


def receiver_view(hub: HubProcess, one: Any) -> Any:
    return next(row for row in hub.get("/api/v1/receivers")["items"] if row["id"] == one["id"])


def remove(hub: HubProcess, *receivers: Any) -> None:
    for one in receivers:
        assert ask(hub, "DELETE", f"receivers/{one['id']}").status == 204


def burning(hub: HubProcess, gpus: tuple[int, ...] = (0, 1)) -> tuple[Teller, str]:
    """Let GPUs of a new node fire under a new rule."""
    teller = new_teller(hub)
    rule = put(hub, hot(runbook="Look at the fans.", **{"for": "0s"}))
    for gpu in gpus:
        teller.slow[gpu]["temp_margin_c"] = 1.0
    telling(teller, lambda: len([alert for alert in alerts(hub, teller) if alert["rule"] == rule])
            == len(gpus), "all fire")
    return teller, rule


def of(sink: HttpSink, rule: str) -> list[Any]:
    return [notice for notice in sink.got if notice["group"].get("rule") == rule]


def mails_about(post: MailSink, words: str) -> list[Any]:
    mails: list[Any] = [message_from_string(mail[2], policy=default) for mail in post.mails]
    return [mail for mail in mails if words in mail.get_content()]


def calm(teller: Teller) -> None:
    for slow in teller.slow:
        slow["temp_margin_c"] = 30.0


def test_each_group_is_told_once_and_once_that_it_is_over(hub: HubProcess, sink: HttpSink,
                                                          post: MailSink) -> None:
    ops = receiver(hub, to=sink.url + "/hook/secret", token=f"t{secrets.token_hex(8)}")
    mails = receiver(hub, kind="mail", to="ops@example.org, night@example.org")
    teller, rule = burning(hub)
    [notice] = telling(teller, lambda: of(sink, rule), "told")
    assert (notice["status"], notice["firing"], notice["receiver"]) == ("firing", 2, "ops")
    assert {alert["target"] for alert in notice["alerts"]} == {gpu.uuid for gpu in teller.facts}
    [first] = [alert for alert in notice["alerts"] if alert["place"] == "0"]
    assert (first["value"], first["fire"], first["signal"]) == (1.0, "<= 5", "temp_margin_c")
    assert first["url"] == f"{hub.url}/gpu/{teller.facts[0].uuid}"
    assert notice["runbooks"] == {rule: "Look at the fans."}
    assert "What to do" in notice["text"]
    at = sink.got.index(notice)
    assert sink.paths[at] == "/hook/secret"
    assert sink.headers[at]["Authorization"].startswith("Bearer t")
    assert sink.headers[at]["Idempotency-Key"] == notice["id"]
    until = time.monotonic() + 2.5
    telling(teller, lambda: time.monotonic() > until, "nothing more comes")
    assert len(of(sink, rule)) == 1
    calm(teller)
    notices = telling(teller, lambda: of(sink, rule)[1:], "over")
    assert [(notice["status"], notice["firing"], notice["over"]) for notice in notices
            ] == [("resolved", 0, 2)]
    letters = telling(teller, lambda: mails_about(post, host_of(teller))[1:] and mails_about(
        post, host_of(teller)), "mails")
    assert len(letters) == 2
    assert letters[0]["To"] == "ops@example.org, night@example.org"
    assert letters[0]["Subject"].startswith("[gpudeck] Firing [warn] Hot")
    assert "List-Id" in letters[0]
    assert letters[0]["References"] == letters[1]["References"]
    assert letters[0]["Message-ID"] != letters[1]["Message-ID"]
    assert receiver_view(hub, ops)["to"] == sink.url + "/…"
    assert "secret" not in json.dumps(hub.get("/api/v1/receivers"))
    assert hub.get("/api/v1/notices")["total"] == 0
    remove(hub, ops, mails)


def test_the_silenced_is_not_told_until_the_silence_ends(hub: HubProcess, sink: HttpSink) -> None:
    teller = new_teller(hub)
    rule = put(hub, hot(group_by=["rule", "gpu"], **{"for": "0s"}))
    quiet, loud = (gpu.uuid for gpu in teller.facts)
    silence = ask(hub, "POST", "silences", {"until": time.time() + 600, "because": "x",
                                            "target": quiet}).json
    ops = receiver(hub, to=sink.url, rules=[rule])
    for slow in teller.slow:
        slow["temp_margin_c"] = 1.0
    telling(teller, lambda: of(sink, rule), "it fires")
    fired = [alert["target"] for alert in alerts(hub, teller) if alert["rule"] == rule]
    assert sorted(fired) == sorted((quiet, loud))
    assert [notice["group"]["gpu"] for notice in of(sink, rule)] == [loud]
    assert ask(hub, "DELETE", f"silences/{silence['id']}").status == 204
    notices = telling(teller, lambda: of(sink, rule)[1:], "told now")
    assert [notice["group"]["gpu"] for notice in notices] == [quiet]
    remove(hub, ops)


def test_a_rule_that_is_not_there_is_not_listened_for(hub: HubProcess, sink: HttpSink) -> None:
    strange = f"none-{secrets.token_hex(3)}"
    settings = {"name": "deaf", "kind": "webhook", "to": sink.url, "rules": ["temp-high", strange]}
    reply = ask(hub, "POST", "receivers", settings)
    assert reply.status == 409
    assert f"there is no rule {strange}" in reply.json["detail"]
    mine = put(hub, hot())
    created = receiver(hub, to=sink.url, rules=[mine])
    assert ask(hub, "DELETE", f"rules/{mine}").status == 204
    edit = ask(hub, "PUT", f"receivers/{created['id']}", settings | {"rules": [mine]})
    assert edit.status == 200, "what it heard of once does not stand in the way of an edit"
    remove(hub, created)


def test_owners_are_written_to_at_their_address(hub: HubProcess, post: MailSink) -> None:
    addresses = ask(hub, "PUT", "addresses", {"items": [
        {"unix_name": "alice", "address": "alice@example.org"}]})
    assert addresses.status == 200, addresses.body
    owners = receiver(hub, kind="owners", name="owners")
    teller = new_teller(hub)
    put(hub, hot(**{"for": "0s"}))
    teller.slow[0]["temp_margin_c"] = teller.slow[1]["temp_margin_c"] = 1.0
    [mail] = telling(teller, lambda: mails_about(post, host_of(teller)), "mail", tasks=one_task())
    assert mail["To"] == "alice@example.org"
    assert "GPU 0" in mail.get_content()
    assert "GPU 1" not in mail.get_content(), "it is not hers"
    remove(hub, owners)


def test_one_that_hangs_keeps_nobody_waiting(hub: HubProcess, sink: HttpSink) -> None:
    with HttpSink() as slow:
        slow.hold()
        teller, rule = burning(hub, (0,))
        # Who comes later is told of what fires then.
        hanging, quick = (receiver(hub, to=one.url, rules=[rule]) for one in (slow, sink))
        telling(teller, lambda: of(slow, rule), "it hangs")
        telling(teller, lambda: of(sink, rule), "the other is told")
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            hub.get("/api/v1/me")
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 1.0
        calm(teller)
        telling(teller, lambda: of(sink, rule)[1:], "and of its end")
        assert len(of(slow, rule)) == 1
        slow.release()
        remove(hub, hanging, quick)


@pytest.mark.parametrize(("status", "says"), [
    (200, "answered 200"), (404, "answered 404"), (302, "redirects are not followed")])
def test_a_receiver_is_tried_out(hub: HubProcess, sink: HttpSink, status: int, says: str) -> None:
    ops = receiver(hub, to=sink.url)
    with HttpSink() as elsewhere:
        sink.status, sink.location = status, elsewhere.url
        answer = ask(hub, "POST", f"receivers/{ops['id']}/test").json
        assert (answer["is_taken"], says in answer["words"]) == (status == 200, True), answer
        assert [notice["status"] for notice in sink.got] == ["test"]
        assert elsewhere.got == []
    remove(hub, ops)


def test_what_is_refused(hub: HubProcess) -> None:
    for fields, says in (({"to": "http://x/ y"}, "blanks"), ({"to": "file:///etc/passwd"}, "https"),
                         ({"to": "http://x", "token_file": "../state.db"}, "without a path"),
                         ({"kind": "owners", "to": "a@b"}, "empty")):
        answer = ask(hub, "POST", "receivers", {"name": "x", "kind": "webhook"} | fields)
        assert answer.status == 409, answer.body
        assert says in answer.json["detail"]
    metadata = receiver(hub, to="http://169.254.169.254/latest")
    words = ask(hub, "POST", f"receivers/{metadata['id']}/test").json["words"]
    assert "169.254.169.254 is not an address of a receiver" in words
    remove(hub, metadata)


def test_a_token_comes_from_its_file(hub: HubProcess, sink: HttpSink) -> None:
    (hub.folder / "secrets").mkdir(mode=0o700)
    word = secrets.token_hex(8)
    (hub.folder / "secrets" / "ops").write_text(word + "\n")
    ops = receiver(hub, to=sink.url, token_file="ops")
    assert ask(hub, "POST", f"receivers/{ops['id']}/test").json["is_taken"]
    assert sink.headers[0]["Authorization"] == f"Bearer {word}"
    changed = ask(hub, "PUT", f"receivers/{ops['id']}", {"name": "new", "kind": "webhook"}).json
    assert (changed["name"], changed["to"], changed["token_file"]) == ("new", sink.url, "ops")
    assert word not in hub.log.read_text()
    remove(hub, ops)


def test_the_heartbeat_comes_by_itself(hub: HubProcess, sink: HttpSink) -> None:
    beat = receiver(hub, kind="heartbeat", to=sink.url)
    wait_for(lambda: sink.got, why="a beat")
    assert (sink.got[0]["status"], sink.got[0]["url"]) == ("alive", hub.url)
    wait_for(lambda: receiver_view(hub, beat)["sent"] == 1, why="its answer")
    remove(hub, beat)


def killed_and_started(hub: HubProcess, teller: Teller) -> None:
    teller.close()
    hub.kill()
    hub.start()
    teller.connect(hub)


def test_killed_at_any_moment_it_is_told(tmp_path: Path) -> None:
    """Send once when killed before it was sent; again, with its id, when killed after."""
    port = free_port()
    with HubProcess(tmp_path / "data", 0, *QUICK) as hub:
        receiver(hub, to=f"http://127.0.0.1:{port}")
        teller, rule = burning(hub)
        telling(teller, lambda: (hub.get("/api/v1/notices")["items"] or [{}])[0].get("attempts"),
                "it was written, and tried")
        [waiting] = hub.get("/api/v1/notices")["items"]
        killed_and_started(hub, teller)
        with HttpSink(port) as sink:
            ask(hub, "POST", f"notices/{waiting['id']}/retry")
            [notice] = telling(teller, lambda: of(sink, rule), "told after all")
            assert notice["id"] == waiting["id"]
            telling(teller, lambda: hub.get("/api/v1/notices")["total"] == 0
                    and len(alerts(hub, teller)) == 2, "taken, and it fires again")
            until = time.monotonic() + 2.5
            telling(teller, lambda: time.monotonic() > until, "nothing more comes")
            assert [notice["id"] for notice in of(sink, rule)] == [notice["id"]]
            sink.hold()
            calm(teller)
            telling(teller, lambda: of(sink, rule)[1:], "its end is on its way")
            killed_and_started(hub, teller)
            sink.release()
            notices = telling(teller, lambda: of(sink, rule)[2:] and of(sink, rule)[1:], "again")
            assert len({notice["id"] for notice in notices}) == 1
            wait_for(lambda: hub.get("/api/v1/notices")["total"] == 0, why="taken")


def test_what_fired_when_the_hub_ended_is_known_before_it_is_said_to_be_over(tmp_path: Path
                                                                            ) -> None:
    tmp_path.chmod(0o700)
    state = HubState.open(tmp_path)
    state.store(NotificationsStore).put_receiver(Receiver("r1", "ops", "webhook", "http://127.0.0.1:9"))
    alert = Alert("hot/a/1", "hot", "v", "Hot", "warn", "gpu", AlertTarget("a", "n", "h"), "firing",
                  1.0,
                  1.0, 1.0, 3.0)
    for were_open in ([alert], []):  # the second start finds it over
        store = state.store(NotificationsStore)
        recovered_groups(store, ReceiverDirectory(store), NotificationTiming(), [], were_open)
        [group] = store.groups()
        assert [member.alert for member in group.members.values()] == [alert]
    state.close()
