"""connect() and watch(hub=) against a real demo."""

import random
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gpudeck.errors import CommandError
from tests.demos import Demo, soon
from widget import connect, watch
from widget.fleet_view import cells_of
from widget.hub import Hub


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo") / "data", "--nodes", "2", "--gpus", "4",
              "--faults", "off") as demo:
        yield demo


@pytest.fixture(scope="module")
def hub(demo: Demo) -> Hub:
    info = demo.info()
    return connect(info["url"], info["token"])


def test_frames(demo: Demo, hub: Hub) -> None:
    gpus = hub.gpus()
    assert len(gpus) == 8
    uuid, util = str(gpus["uuid"].iloc[0]), random.randrange(1, 100)
    demo.control({uuid: {"util_pct": util}})
    assert soon(lambda: (hub.gpus().set_index("uuid")["util_pct"] == util)[uuid])
    assert set(hub.tasks()["user"].dropna())
    assert str(gpus["sampled_at"].dt.tz) == "UTC"
    series = hub.series(uuid, "power_w", start=datetime.now(UTC) - timedelta(minutes=30), step=60)
    assert list(series.columns) == ["t", "gpu", "mean", "min", "max"]
    assert series["mean"].dropna().between(10, 800).all()  # holes are holes
    assert len(series["mean"].dropna()) >= 1
    usage = hub.usage(by="user", bucket=3_600)
    assert {"t", "of", "gpu_s", "idle_s"} <= set(usage.columns)
    assert "kind" in hub.events()
    assert list(hub.gpus("user:nobody-of-this-name").columns)[:2] == ["host", "gpu"]  # empty
    assert demo.url.rstrip("/") in repr(hub)


def test_errors_say_what_to_do(demo: Demo, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="refuses") as refusal:
        connect(demo.url, "gd_wrong")
    text = notebook_output(f"connect({demo.url!r}, 'gd_wrong')")
    assert text == f"gpudeck: {refusal.value}"  # one sentence, without a word of a flag
    assert "--" not in text
    assert "--" not in notebook_output("connect('http://127.0.0.1:9', 't')")
    monkeypatch.delenv("GPUDECK_TOKEN", raising=False)
    with pytest.raises(CommandError, match="a token is needed"):
        connect(demo.url)
    with pytest.raises(CommandError, match="plain http"):
        connect("http://example.org:8050", "t")
    with pytest.raises(CommandError, match="no hub at"):
        connect("http://127.0.0.1:9", "t")
    with pytest.raises(CommandError):
        hub.gpus("util<<5")
    with pytest.raises(ValueError, match="time zone"):
        hub.series("x", start=datetime(2026, 1, 1))


def notebook_output(cell: str) -> str:
    shell, output = InteractiveShell(), StringIO()
    shell.push({"connect": connect})
    with redirect_stdout(output):
        shell.run_cell(cell)
    return output.getvalue().strip()


def test_a_fleet_is_watched(demo: Demo) -> None:
    info = demo.info()
    widget = watch(info["url"], info["token"])
    try:
        assert soon(lambda: widget.picture.get("rows"))
        assert sum(row["count"] for row in widget.picture["rows"]) == 8
        assert len(widget.cells) == 8 * 2 * 5
        assert "8 GPUs" in repr(widget)
    finally:
        widget.close()


def test_my_quota_is_shown_with_what_i_hold_of_it_and_nobody_elses(
        demo: Demo, hub: Hub) -> None:
    info, client = demo.info(), hub.client
    assert soon(client.tasks)
    user = random.choice(sorted({str(task["user"]) for task in client.tasks() if task["user"]}))
    client.put_quota("all-of-us", {"subject": "*", "mem_bytes": "1KiB"})
    client.put_quota("somebody", {"subject": "user:somebody-else", "gpus": 1})
    client.put_quota("idle", {"subject": "user:on-holiday", "gpus": 3})

    def token(name: str) -> str:
        created = client.hub.ask_for("POST", "tokens", {
            "name": name, "role": "user", "unix_names": [name],
            "expires_at": datetime.now(UTC).timestamp() + 600})
        return str(created["token"])

    def holders(quota_id: str) -> set[str]:
        quota = client.quota(quota_id)
        return {balance["holder"] for balance in quota["balances"]} if quota else set()

    assert soon(lambda: user in holders("all-of-us"))
    widget, away = watch(info["url"], token(user)), watch(info["url"], token("on-holiday"))
    try:
        def quotas_of(widget: Any) -> dict[str, Any]:
            return {row["quota"]: row for row in widget.picture.get("quotas") or ()}

        assert soon(lambda: quotas_of(widget).get("all-of-us", {}).get("is_over")), widget.picture
        own = next(balance for quota in client.quotas() if quota["quota"]["id"] == "all-of-us"
                   for balance in quota["balances"] if balance["holder"] == user)
        assert quotas_of(widget).keys() == {"all-of-us", "fair-share"}
        assert quotas_of(widget)["all-of-us"]["most"] == own["most"] == 1_024
        assert user in repr(widget)
        assert "over: " in repr(widget)
        assert soon(lambda: quotas_of(away)), "also to whom nothing runs"
        assert (quotas_of(away)["idle"]["used"], quotas_of(away)["idle"]["most"]) == (0, 3)
        assert "fair-share" not in quotas_of(away), "their own is more specific"
    finally:
        widget.close()
        away.close()
        for name in ("all-of-us", "somebody", "idle"):
            client.remove_quota(name)


def test_my_leases_and_my_place_in_the_queue_are_shown(demo: Demo, hub: Hub) -> None:
    client = hub.client
    assert soon(client.leases, 90.0)
    owner = random.choice(sorted({str(lease["owner"]) for lease in client.leases()}))
    created = client.hub.ask_for("POST", "tokens", {
        "name": f"pool of {owner}", "role": "user", "unix_names": [owner],
        "expires_at": datetime.now(UTC).timestamp() + 600})
    widget = watch(demo.url, str(created["token"]))
    try:
        def ends(leases: list[dict[str, Any]]) -> list[tuple[str, float]]:
            return sorted((lease["host"], lease["until"]) for lease in leases)

        def is_mine() -> bool:
            leases = [lease for lease in client.leases() if lease["owner"] == owner]
            return bool(leases) and ends(leases) == ends(widget.picture.get("leases") or [])

        assert soon(is_mine), widget.picture
        assert "your lease on" in repr(widget)
        client.hub.ask_for("POST", "claims", {"owner": owner, "gpus": 4, "term_s": "1h"})
        assert soon(lambda: [claim["asks"] for claim in widget.picture["claims"]]), widget.picture
        assert "place in the queue" in repr(widget)
        frame, queue = hub.leases(), hub.claims()
        assert owner in set(frame["owner"])
        assert str(frame["until"].dt.tz) == "UTC"
        assert owner in set(queue["owner"])
    finally:
        widget.close()


def test_cells_know_why_there_is_nothing() -> None:
    total = 100.0
    gpus = [{"state": "ok", "values": {"util_pct": 50.0, "mem_used_bytes": 100.0}, "missing": {}},
            {"state": "ok", "values": {}, "missing": {"util_pct": "unsupported"}},
            {"state": "lost", "values": {"util_pct": 9.0}, "missing": {}}]
    cells = cells_of([{**gpu, "facts": {"mem_total_bytes": total}} for gpu in gpus])
    assert list(cells[:6]) == [120, 251, 253, 239, 255, 253]
