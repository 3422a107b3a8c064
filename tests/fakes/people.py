"""Users of a node whose terminals a test leaves alone."""

from agent.tasks.people import SystemPeople
from agent.tasks.terminals import TerminalReach


class QuietPeople(SystemPeople):
    """`at_terminals`: the messages they would have got."""

    def __init__(self) -> None:
        super().__init__()
        self.at_terminals: list[str] = []

    def notify(self, uid: int, sentences: list[str]) -> TerminalReach:
        self.at_terminals += sentences
        return TerminalReach(terminals=1)
