"""A port for a server that is started later."""

import random
import socket

# Below the ports that the kernel gives to connections: one of those may be taken by the time that
# the server starts. Not by the tests' seed: several test processes with one seed run at a time.
PORTS = range(10_000, 32_000)
DICE = random.SystemRandom()


def free_port() -> int:
    while True:
        port = DICE.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
