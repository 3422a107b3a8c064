"""`python -m dashboard`: the hub, from a checkout."""

import sys

from gpudeck.errors import CommandError

from .access_cli import token, user
from .cli import hub, link

COMMANDS = {"hub": hub, "link": link, "user": user, "token": token}


def main(words: list[str]) -> int:
    try:
        return COMMANDS[words[0]](words[1:]) if words and words[0] in COMMANDS else hub(words)
    except CommandError as error:
        print(f"gpudeck: {error}", file=sys.stderr)
        return error.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
