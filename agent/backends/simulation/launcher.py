"""Stands in for torchrun: starts the ranks of a job, and ends them all when one of them ends.

Never imported: copied and run by the keeper, as stand_in.py is.
`torchrun.py --nproc-per-node N SCRIPT WORDS...`
"""

import os
import signal
import sys

TYPE_CHECKING = False  # without typing, whose import takes as long as all the rest
if TYPE_CHECKING:
    from types import FrameType

CLOSES_WITHIN_S = 30  # torchrun's own patience between SIGTERM and SIGKILL

ranks: set[int] = set()


def tell_all(number: int) -> None:
    for pid in ranks:
        os.kill(pid, number)  # ours, and not waited for: no other process can have the pid


def asked_to_end(signum: int, frame: "FrameType | None") -> None:
    tell_all(signal.SIGTERM)
    signal.alarm(CLOSES_WITHIN_S)


def lost_patience(signum: int, frame: "FrameType | None") -> None:
    tell_all(signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, asked_to_end)
    signal.signal(signal.SIGALRM, lost_patience)
    for rank in range(int(sys.argv[2])):
        words = [sys.executable, "-S", "-E", *sys.argv[3:], "--rank", str(rank)]
        ranks.add(os.posix_spawn(sys.executable, words, os.environ))
    while ranks:
        # Left in place until it is off the list, so that no handler signals a pid that is free.
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert info is not None
        ranks.discard(info.si_pid)
        os.waitpid(info.si_pid, 0)
        asked_to_end(0, None)
