"""Log lines that somebody else can cause: one a minute, and what was left out is counted."""

from dashboard.runtime.paced_log import LogPacer


def test_a_line_a_minute_of_each_and_the_rest_is_counted() -> None:
    pacer = LogPacer()
    counts = [pacer.due("thief", float(at)) for at in range(150)]
    assert [count for count in counts if count is not None] == [0, 59, 59]
    assert pacer.due("other", 149.0) == 0
