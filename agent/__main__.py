"""`python -m agent`: the daemon, from a bare checkout."""

import sys

from gpudeck.errors import CommandError

from .cli.main import agent

if __name__ == "__main__":
    try:
        sys.exit(agent(sys.argv[1:]))
    except CommandError as error:
        print(f"gpudeck: {error}", file=sys.stderr)
        sys.exit(error.code)
