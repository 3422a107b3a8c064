"""Words of this machine within the bounds of the wire."""

WORD_MAX, TEXT_MAX = 128, 256


def cut(text: str | None, most: int = WORD_MAX) -> str | None:
    """Cut a text to the wire's bounds, and leave out what nobody can read or type."""
    if text is None:
        return None
    return "".join(char for char in text[: 4 * most] if char.isprintable())[:most].strip() or None
