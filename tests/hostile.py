"""Text as a tenant might choose it for a process, a user or a host: more than 500 strings (T16)."""

MARKS = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"><svg onload=alert(1)>",
    "';alert(1)//", "</title><script>", "<!--", "]]>", "javascript:alert(1)", "&lt;b&gt;",
    "{{7*7}}", "${7*7}", "{csrf}", "%s%n%x", "{0.__class__}", "'; drop table users; --",
    "../../etc/passwd", "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\x9b31m",
    "\r\nSet-Cookie: a=b", "\nat=now level=INFO", "a\tb", "\x00", "\x07\x08\x7f", "\u2028\u2029",
    "\u202egnp.exe", "\u2066\u2069\u200b\ufeff", "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)",
    "\t=1", "A" * 128, "\u0301" * 60, "\ud7ff\ue000", "\U0001f4a9" * 30, "\uffff", "null", "NaN",
    "-0", "1e999", "true", "\\", "\\u0000", "\"", "'", "`", "%00", "%0d%0a", "&#x3c;",
    "\u00adsoft", "a\u0000b", "$(reboot)", "`id`", "; rm -rf /", "|cat", "~",
)
AROUND = ("{}", "python {}", "{} x", " {}", "{}\n", "x={}", "/bin/{}", "--token={}", "\"{}\"")


def strings() -> list[str]:
    """Strings of which no two are alike; each fits a Word of the contract."""
    texts = [around.replace("{}", mark)[:128] for around in AROUND for mark in MARKS]
    return [text for text in dict.fromkeys(texts) if text]
