"""`gpudeck agent` on a machine whose memory has room, whatever this one's cgroups look like."""

import sys

from agent.cli.main import agent
from agent.tasks import host_memory

if __name__ == "__main__":
    vars(host_memory)["rooms"] = lambda *_: (host_memory.MemoryRoom(2.0**40),)
    sys.exit(agent(sys.argv[1:]))
