"""The supervisor's back-off; its processes: tests/integration/test_agent_process.py."""

import math

import pytest

from agent.reader.supervisor import ReaderTimeouts


@pytest.mark.parametrize(("unread_s", "longest_s"), [
    (0.0, 5.0), (59.0, 5.0), (60.0, 30.0), (math.inf, 30.0)])
def test_a_driver_that_is_being_reloaded_is_looked_for_often(unread_s: float,
                                                             longest_s: float) -> None:
    """`driver-gone` fires after 30 s: a reload of 20 s was found after 31."""
    assert ReaderTimeouts().longest_back_off(unread_s) == longest_s
    assert ReaderTimeouts(back_off_s=(0.1, 1.0)).longest_back_off(unread_s) == 1.0
