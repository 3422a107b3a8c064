"""`python -m agent`: the daemon, from a bare checkout."""

from gpudeck.errors import run_as_program

from .cli.main import agent

if __name__ == "__main__":
    run_as_program(agent)
