"""Takes secrets out of text that leaves this machine: command lines, stderr of children."""

import re
from collections.abc import Sequence

HIDDEN = "[redacted]"
BEFORE_NAMES = 2  # `Authorization: Bearer X` is no name and its value

# In the name of what is secret. Rather one word too many than one secret too few.
SECRET = re.compile(
    r"(?:token|passw(?:or)?d|passwd|passphrase|secret|credentials?|"
    r"(?:api|access|account|private|auth|signing|encryption|shared|wandb|license)[_-]?key)"
    r"(?![a-z])", re.IGNORECASE)
NAME = re.compile(r"[\w.-]+")
# What follows the name: `=X`, `: "X"`, ` X`.
VALUE = re.compile(r"[\"']?(?:\s*[=:]\s*|\s+(?!-))(\"[^\"]*\"|'[^']*'|[^\s\"'&;,]+)")

# (pattern, replacement). Group 1 is what stays: the name of the secret, never its value.
PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|$)", HIDDEN),
        (r"(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", rf"\1{HIDDEN}"),
        (r"((?:^|\s)--?(?:[\w-]+-)?(?:pw|pwd|pass|auth|pat|cookie)(?:\s+(?!-)|=))\S+",
         rf"\1{HIDDEN}"),
        (r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@]*:)[^\s@]+(?=@)", rf"\1{HIDDEN}"),
        (r"([?&](?:sig|signature|x-amz-signature)=)[^\s&\"']+", rf"\1{HIDDEN}"),
        # Programs whose short options are known.
        (r"(\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^|;]*?\s-p)(?=\S)[^\s-]\S*", rf"\1{HIDDEN}"),
        (r"(\b(?:sshpass|docker login|podman login|helm registry login)\b[^|;]*?\s-p\s*)\S+",
         rf"\1{HIDDEN}"),
        (r"(\bredis-cli\b[^|;]*?\s-a\s+)\S+", rf"\1{HIDDEN}"),
        (r"(\b(?:curl|wget|http)\b[^|;]*?\s(?:-u|-U|--user|--proxy-user)[\s=]*[^\s:]+:)\S+",
         rf"\1{HIDDEN}"),
        # Keys that are known by their looks.
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", HIDDEN),
        (r"\bhf_[A-Za-z0-9]{20,}", HIDDEN),
        (r"\bsk-[A-Za-z0-9_-]{16,}", HIDDEN),
        (r"\bgh[pousr]_[A-Za-z0-9]{20,}", HIDDEN),
        (r"\bgithub_pat_\w{20,}", HIDDEN),
        (r"\bglpat-[A-Za-z0-9_-]{16,}", HIDDEN),
        (r"\bxox[abprs]-[A-Za-z0-9-]{10,}", HIDDEN),
        (r"\bxapp-[A-Za-z0-9-]{10,}", HIDDEN),
        (r"\bnvapi-[A-Za-z0-9_-]{16,}", HIDDEN),
        (r"\bAIza[A-Za-z0-9_-]{30,}", HIDDEN),
        (r"\bya29\.[A-Za-z0-9._-]{16,}", HIDDEN),
        (r"\b(?:npm_|dckr_pat_|gsk_|r8_|pypi-)[A-Za-z0-9_-]{20,}", HIDDEN),
        (r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*", HIDDEN),
    )
)


def redact(text: str) -> str:
    for pattern, replacement in PATTERNS[:BEFORE_NAMES]:
        text = pattern.sub(replacement, text)
    text = _redact_named(text)
    for pattern, replacement in PATTERNS[BEFORE_NAMES:]:
        text = pattern.sub(replacement, text)
    return text


def _redact_named(text: str) -> str:
    """Hide the value: --token X, --api-key=X, password: X, HF_TOKEN=X, secret_key='X'. Name by
    name, each once: one pattern for it all takes a hostile line's length cubed, two minutes for 8
    KB."""
    parts, at = [], 0
    for name in NAME.finditer(text):
        if name.start() >= at and SECRET.search(name[0]):
            value = VALUE.match(text, name.end())
            if value is not None:
                parts += [text[at:value.start(1)], HIDDEN]
                at = value.end(1)
    return "".join((*parts, text[at:]))


def redact_words(words: Sequence[str]) -> str:
    """Return a command line as text. A secret may hold blanks: word by word first, then as a
    whole."""
    parts: list[str] = []
    follows = False  # a flag that says that this word is secret
    for word in words:
        parts.append(HIDDEN if follows and not word.startswith("-") else _word(word))
        name = NAME.fullmatch(word)
        follows = word.startswith("-") and name is not None and SECRET.search(word) is not None
    return redact(" ".join(parts))


def _word(word: str) -> str:
    """Hide the value of `--token=X` and `TOKEN=X`, whatever is in X."""
    name = NAME.match(word)
    if name is None or word[name.end():name.end() + 1] not in ("=", ":"):
        return word
    return f"{word[:name.end() + 1]}{HIDDEN}" if SECRET.search(name[0]) else word
