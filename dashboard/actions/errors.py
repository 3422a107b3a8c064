"""Refusals of actions, for the person who requested them."""

from ..web.answers import ApiError


class ActionRefusedError(ApiError):
    """The sentence says why, and what to do."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(status, sentence, f"urn:gpudeck:problem:{code}")
        self.code = code
