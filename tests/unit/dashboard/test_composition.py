"""Composition of the hub: what is missing is named, and one end that fails stops no other."""

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from dashboard.app import BUILDERS
from dashboard.capabilities import CAPABILITIES
from dashboard.composition import Capability, Core, Seam

NAME_OF: Seam[[int], str] = Seam("the name of a thing")


def a_core() -> Core:
    nothing: Any = None
    return Core(nothing, nothing, nothing, 1)


def fails() -> NoReturn:
    raise OSError("the disk is gone")


def test_a_part_that_nobody_has_made_is_named() -> None:
    with pytest.raises(RuntimeError, match="no capability before this one makes a int"):
        a_core().get(int)
    core = a_core()
    core.add(1)
    with pytest.raises(RuntimeError, match="two capabilities have a int"):
        core.add(2)


@pytest.mark.parametrize("need", [lambda core: core.call(NAME_OF), lambda core: core.later(int)])
def test_a_hub_does_not_start_without_what_its_parts_need(need: Callable[[Core], Any]) -> None:
    def build(core: Core) -> Capability:
        need(core)
        return Capability()

    with pytest.raises(RuntimeError, match=r"no capability of this hub has: (the name|int)"):
        a_core().build([build])


def test_a_function_from_above_is_called_where_it_is_needed() -> None:
    core, names = a_core(), []

    def below(core: Core) -> Capability:
        name_of = core.call(NAME_OF)
        return Capability(start=lambda: names.append(name_of(7)))

    def above(core: Core) -> Capability:
        core.join(NAME_OF, lambda number: f"thing {number}")
        return Capability()

    core.build([below, above])
    for capability in core.built:
        capability.start()
    assert names == ["thing 7"]


def test_an_end_that_fails_keeps_no_other_from_writing_what_it_has() -> None:
    core, ends = a_core(), []
    core.build([lambda _: Capability(close=lambda: ends.append("log"), stop=fails),
                lambda _: Capability(close=fails, stop=lambda: ends.append("viewers"))])
    core.stop()
    core.close()
    assert ends == ["viewers", "log"]


def test_all_capabilities_are_imported_with_the_hub() -> None:
    """A standby imports it while it waits; what came later would make the fleet wait for it."""
    assert [build.__module__ for build in BUILDERS] == [
        f"dashboard.{name}.wiring" for name in CAPABILITIES]
