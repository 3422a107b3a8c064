"""Why an action is not done, for whoever asked for it."""


class ActionRefusedError(Exception):
    """The sentence says why and what to do."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
