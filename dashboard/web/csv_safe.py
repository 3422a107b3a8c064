"""Text that goes into a spreadsheet: names and command lines are hostile, and a cell that begins
like a formula is run when the file is opened (OWASP, CSV injection)."""

# Full-width signs are taken for the plain ones by spreadsheets in East Asian settings.
STARTS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001


def defuse(text: str) -> str:
    """Put a quote before a formula, which spreadsheets take for `this is text`. A cell that begins
    with a quote gets one more, so that removing the first one always restores the original."""
    return f"'{text}" if text.startswith((*STARTS, "'")) else text
