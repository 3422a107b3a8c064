"""Sign-in attempts, and when sessions and tokens were last used: held in memory for a moment,
because password guessing must not drive disk writes."""

import time
from collections.abc import Callable

from .protocols import SignInNotes
from .sign_in_attempts import SignInAttempts
from .store import SIGN_INS_KEPT, SessionStore, SignInRecord


class SignInLog:
    def __init__(self, store: SessionStore, note: SignInNotes) -> None:
        self._store = store
        self._note = note
        self._new: list[SignInRecord] = []
        self._being_written: list[SignInRecord] = []
        self._summaries = SignInAttempts(time.monotonic())
        self._used_sessions: dict[str, float] = {}
        self._used_tokens: dict[str, float] = {}

    def add(self, attempt: SignInRecord) -> None:
        self._new = [*self._new[-SIGN_INS_KEPT + 1:], attempt]
        self._summaries.add(attempt.at, attempt.name, attempt.address, attempt.how,
                            attempt.outcome, time.monotonic())

    def session_used(self, session_id: str, at: float) -> None:
        self._used_sessions[session_id] = at

    def token_used(self, token_id: str, at: float) -> None:
        self._used_tokens[token_id] = at

    def newest(self) -> list[SignInRecord]:
        new = [*self._being_written, *self._new]
        return [*reversed(new), *self._store.sign_ins()][:SIGN_INS_KEPT]

    def write(self, run: Callable[..., None]) -> None:
        """Write what is new. `run` calls a function with its arguments, for example in a thread."""
        summaries = self._summaries.take(time.time(), time.monotonic())
        notes = self._new, self._used_sessions, self._used_tokens, summaries
        self._new, self._used_sessions, self._used_tokens = [], {}, {}
        if not any(notes):
            return
        self._being_written = notes[0]
        try:
            run(self._note, notes)
        except Exception:
            self._summaries.put_back(summaries)
            raise
        finally:
            self._being_written = []

    def write_rest(self) -> None:
        """Write the rest in this thread, before the hub ends."""
        self.write(lambda write, notes: write(*notes))
