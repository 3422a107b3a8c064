"""Takes secrets out of text that leaves this machine: command lines, stderr of children."""

import re

HIDDEN = "[redacted]"

# (pattern, replacement). Group 1 is what stays: the name of the secret, never its value.
PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # --token X, --api-key=X, password: X, HF_TOKEN=X, secret_key='X'. Rather one word too
        # many than one secret too few.
        (
            r"((?:^|[\s\"'?&;,{(]|--?)[\w.-]*(?:token|passw(?:or)?d|passwd|secret|api[_-]?key|"
            r"access[_-]?key|private[_-]?key|credentials?)(?![a-z])[\w.-]*[\"']?(?:\s*[=:]\s*|\s+(?!-)))"
            r"(\"[^\"]*\"|'[^']*'|[^\s\"'&;,]+)",
            rf"\1{HIDDEN}",
        ),
        (r"(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", rf"\1{HIDDEN}"),
        (r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s@]+(?=@)", rf"\1{HIDDEN}"),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", HIDDEN),
        (r"\bhf_[A-Za-z0-9]{20,}", HIDDEN),
        (r"\bsk-[A-Za-z0-9_-]{16,}", HIDDEN),
        (r"\bgh[pousr]_[A-Za-z0-9]{20,}", HIDDEN),
        (r"\bglpat-[A-Za-z0-9_-]{16,}", HIDDEN),
        (r"\bxox[abprs]-[A-Za-z0-9-]{10,}", HIDDEN),
        (r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*", HIDDEN),
    )
)


def redact(text: str) -> str:
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text
