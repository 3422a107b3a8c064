"""Words of this machine within the bounds of the wire."""

WORD_MAX, TEXT_MAX = 128, 256


def cut(text: str | None, most: int = WORD_MAX) -> str | None:
    """Within the wire's bounds; what nobody can read or type is left out."""
    if text is None:
        return None
    return "".join(each for each in text[: 4 * most] if each.isprintable())[:most].strip() or None
