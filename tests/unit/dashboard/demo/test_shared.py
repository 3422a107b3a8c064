"""The demo's hub as the demo sees it."""

from pathlib import Path

from dashboard.demo.shared import open_hub


def test_a_hub_that_does_not_answer_now_ends_no_demo(tmp_path: Path) -> None:
    """A busy machine made the demo give up, with "is it running?" about its own hub."""
    hub = open_hub("demo", tmp_path / "hub", 0)  # nothing listens there yet
    assert not hub.has_values("n001")
    assert hub.first_gpu() is None
    assert hub.nodes() is None
