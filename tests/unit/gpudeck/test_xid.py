import random

import pytest

from gpudeck.measures.xid import KNOWN, UNKNOWN_CODE, explain

# By NVIDIA's table of Xids: the node's fault, and the task's own.
HARDWARE = (48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120)
OF_TASKS = (13, 31, 43, 45)
# What NVIDIA's k8s-device-plugin does not count against a GPU (pitfalls.md A.2).
APPLICATION = (13, 31, 43, 45, 68, 109)


@pytest.mark.parametrize("code", [*HARDWARE, *OF_TASKS, *APPLICATION])
def test_whose_fault_it_is(code: int) -> None:
    assert (explain(code).blame == "task") == (code not in HARDWARE)


def test_every_number_has_a_sentence_that_says_what_to_do() -> None:
    for code in (*KNOWN, UNKNOWN_CODE, *random.sample(range(200, 100_000), 50)):
        meaning = explain(code)
        assert meaning.code == code
        assert str(code) in meaning.sentence
        assert meaning.advice
        assert len(meaning.sentence) < 300


def test_no_number_stands_twice() -> None:
    codes = [xid.code for xid in KNOWN.values()]
    assert codes == sorted(set(codes))
