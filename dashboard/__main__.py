"""`python -m dashboard`: the hub and the commands on its folder, from a checkout."""

import sys
from importlib import import_module

from gpudeck.errors import CommandError

# Imported by name, as entry points are: only the hub itself needs Dash.
COMMANDS = {"hub": "cli.hub", "link": "cli.access", "user": "cli.access", "token": "cli.access",
            "history": "cli.history"}


def main(words: list[str]) -> int:
    name, rest = (words[0], words[1:]) if words and words[0] in COMMANDS else ("hub", words)
    command = getattr(import_module(f".{COMMANDS[name]}", __package__), name)
    try:
        return int(command(rest))
    except CommandError as error:
        print(f"gpudeck: {error}", file=sys.stderr)
        return error.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
