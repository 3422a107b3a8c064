"""Text that goes into a spreadsheet: names and command lines are hostile, and a cell that begins
like a formula is run by whoever opens the file (OWASP, CSV injection)."""

# Full-width signs are taken for the plain ones by spreadsheets in East Asian settings.
STARTS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001


def defused(text: str) -> str:
    """With a quote before it, which spreadsheets take for `this is text`. A cell that begins with
    a quote gets one more, so that taking the first one away always gives back what was there."""
    return f"'{text}" if text.startswith((*STARTS, "'")) else text
