"""Text of others on a terminal, in a log or in a mail. Pure."""


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Replace characters that cannot be printed: tasks and nodes name themselves, and an escape
    sequence must not move a cursor, nor show one letter for another."""
    return "".join(char if char.isprintable() else instead for char in text)
