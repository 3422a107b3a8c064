"""Earlier messages wait until a hub that has steps over knows what the archive has of them."""

from dataclasses import dataclass, field
from typing import Any, cast

from dashboard.nodes import backfills
from dashboard.nodes.socket import AgentEndpoint
from gpudeck.contract.wire import Backfill


class NoServer:
    def on(self, *_: object, **__: object) -> None: ...


@dataclass
class Scene:
    is_waiting: bool = True
    steps: list[str] = field(default_factory=list)
    closings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.endpoint = AgentEndpoint(
            cast(Any, NoServer()), cast(Any, None), cast(Any, None), cast(Any, None),
            lambda event: self.steps.append(cast(Any, event).link), lambda: True,
            lambda: self.is_waiting, cast(Any, self))

    def add(self, *_: object) -> None: ...

    def bring(self, link: str, size: int = 1) -> None:
        self.endpoint._links.setdefault(link, cast(Any, Link(link, self.closings)))
        self.endpoint._queue_backfill(link, Backfill((b"x",)), size)


@dataclass
class Link:
    name: str
    closings: list[str]

    @property
    def peer(self) -> "Link":
        return self

    def finish(self, *_: object) -> None:
        self.closings.append(self.name)

    def abort(self) -> None: ...


def test_they_wait_and_are_taken_then() -> None:
    scene = Scene()
    scene.bring("a")
    scene.endpoint.backfills.step(0.0, 0.0)
    assert scene.steps == []
    scene.is_waiting = False
    scene.endpoint.take_waiting()
    assert scene.endpoint.backfills.wake.is_set()
    scene.endpoint.backfills.step(0.0, 0.0)
    assert scene.steps == ["a"]


def test_who_finds_no_room_stays_connected_and_connects_again_then() -> None:
    scene = Scene()
    scene.bring("a", backfills.MAX_BYTES + 1)
    scene.bring("b")
    assert scene.closings == []
    scene.is_waiting = False
    scene.endpoint.take_waiting()
    scene.endpoint.backfills.step(0.0, 0.0)
    assert (scene.steps, scene.closings) == (["a"], ["b"])
