"""A rank of a job whose NCCL has a RAS service: `python nccl_ras.py PORT FILE [--old]`.

It speaks as `src/ras/client_support.cc` of NCCL 2.29 does: commands by line, in any case of
letters; a status ends the connection. FILE has the state, read again for each status; pid 0 in it
is its own. `--old`: as before 2.28.7, which knows no formats.
"""

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def rank(number: int, launched: int, pid: int = 0, kind: str = "AllReduce", host: str = "10.0.0.5"
         ) -> dict[str, Any]:
    return {"rank": number, "host": host, "pid": pid, "cuda_dev": number, "nvml_dev": number,
            "status": {"init_state": 0, "async_error": 0, "finalize_called": False,
                       "destroy_flag": False, "abort_flag": False},
            "collective_counts": dict.fromkeys(
                ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"), 0) | {
                    kind: launched}}


def missing(number: int, is_unresponsive: bool = True, is_dead: bool = False) -> dict[str, Any]:
    return {"rank": number, "host": "10.0.0.6", "pid": 4_000 + number, "cuda_dev": number,
            "nvml_dev": number, "status": {"unresponsive": is_unresponsive,
                                           "considered_dead": is_dead}}


def communicator(ranks: Sequence[dict[str, Any]], lacks: Sequence[dict[str, Any]] = (),
                 name: str = "0xae94423cfbb2ef4a") -> dict[str, Any]:
    return {"hash": name, "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
            "size": len(ranks) + len(lacks), "ranks_count": len(ranks),
            "missing_ranks_count": len(lacks), "ranks": [*ranks], "missing_ranks": [*lacks]}


def status(*communicators: dict[str, Any]) -> str:
    return json.dumps({
        "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53", "communicators_count": len(communicators),
        "communicators": [*communicators],
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0}}, indent=2)


def reply(command: str, path: Path, is_old: bool) -> tuple[str, bool]:
    """Return what answers a command, and whether that ends the connection."""
    words = command.lower().split()
    match words:
        case ["client", "protocol", _]:
            return "SERVER PROTOCOL 2\n", False
        case ["timeout", _]:
            return "OK\n", False
        case ["set", "format", "json"] if not is_old:
            return "OK\n", False
        case ["status"] | ["verbose", "status"]:
            return path.read_text().replace('"pid": 0,', f'"pid": {os.getpid()},'), True
    return f"ERROR: Unknown command {command}\n", False


def serve(port: int, path: Path, is_old: bool) -> None:
    # As NCCL does: all ranks of a user on a machine share the port.
    with socket.create_server(("127.0.0.1", port), reuse_port=True) as server:
        print(os.getpid(), flush=True)
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rw", newline="\n") as lines:
                for line in lines:
                    text, is_over = reply(line.strip(), path, is_old)
                    lines.write(text)
                    lines.flush()
                    if is_over:
                        break


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]), "--old" in sys.argv)
