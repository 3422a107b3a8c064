"""Sign-ins as records of the audit log: each success, and a bounded number of failures. Pure.
Guessing must not be able to fill the disk, nor to push a success out."""

from typing import Any

from gpudeck.rate import TokenBucket

FAILED_PER_S = 1.0
FAILED_AT_ONCE = 60.0
SUMMED_EVERY_S = 60.0
LET_IN = "let in"

Records = list[dict[str, Any]]


class SignInAttempts:
    def __init__(self, mono: float) -> None:
        self._bucket = TokenBucket(FAILED_PER_S, FAILED_AT_ONCE, mono)
        self._records: Records = []
        self._left_out = 0
        self._summed_mono = mono

    def add(self, at: float, name: str, address: str, how: str, outcome: str, mono: float) -> None:
        if outcome != LET_IN and not self._bucket.take(1, mono):
            self._left_out += 1
            return
        sentence = (f"{name!r} signed in by {how} from {address}" if outcome == LET_IN
                    else f"{name!r} by {how} from {address}: {outcome}")
        self._records.append({"at": at, "kind": "sign_in", "action": how, "actor": name,
                              "actor_kind": "person", "address": address, "outcome": outcome,
                              "sentence": sentence})

    def take(self, now: float, mono: float) -> Records:
        records, self._records = self._records, []
        if self._left_out and mono - self._summed_mono >= SUMMED_EVERY_S:
            records.append({"at": now, "kind": "sign_in", "action": "many", "outcome": "refused",
                            "sentence": f"{self._left_out} more attempts were refused",
                            "detail": {"count": self._left_out}})
            self._left_out, self._summed_mono = 0, mono
        return records

    def put_back(self, records: Records) -> None:
        """Put records back that could not be written."""
        self._records = records + self._records
