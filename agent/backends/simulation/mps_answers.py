"""Answers of nvidia-cuda-mps-control: line for line what those of 535, 550 and 555 print
(535 to 555), also where it refuses. What was not seen on a real one is marked so.

With nothing but the standard library and no relative import: the tests' fake is a program of its
own, which loads this file alone.
"""

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# What stands in the program of r550; which line ends it was not seen.
DENIED = ("Insufficient privileges for UID 1000. Only the root user may change another user's "
          "server\n")
STATUS_SINCE = 550
MIB, GIB = 2**20, 2**30
LEFT_EVERY_S = 0.02


@dataclass
class SimulatedMpsSettings:
    percent: float = 100.0
    memory: dict[int, int] = field(default_factory=dict)  # bytes by device
    priority: int = 0

    def copy(self) -> "SimulatedMpsSettings":
        return SimulatedMpsSettings(self.percent, dict(self.memory), self.priority)


@dataclass(frozen=True)
class SimulatedMpsState:
    """Servers and clients at the moment. `ignores`: takes settings, says what it says when it
    obeys, and does nothing. `keeps`: prints the old value, as for one that it does not like.
    `refuses`: as for a user who is not allowed."""

    clients: Mapping[int, list[int]]  # by their server
    status: Mapping[int, str] = field(default_factory=dict)  # of servers; else ACTIVE
    version: int = STATUS_SINCE
    ignores: bool = False
    keeps: bool = False
    refuses: bool = False
    refuses_priority: bool = False


class NoSuchServerError(Exception):
    """The server of a command is none: what is printed then."""


class SimulatedMpsDaemon(ABC):
    """The daemon: one line in, its answer out. A subclass says which servers and clients there
    are, and what becomes of them."""

    def __init__(self, default: SimulatedMpsSettings, of: dict[int, SimulatedMpsSettings]) -> None:
        self._default = default
        self._of = of
        self.is_over = False

    @abstractmethod
    def look(self) -> SimulatedMpsState: ...

    @abstractmethod
    def let_go(self, server: int, client: int) -> None:
        """Take its contexts away: it is no client any more."""

    @abstractmethod
    def end_servers(self) -> None: ...

    def answer(self, line: str) -> str:
        world = self.look()
        for server in world.clients:
            # A server takes the default along.
            self._of.setdefault(server, self._default.copy())
        name, _, rest = line.strip().partition(" ")
        words = rest.split()
        setting = SETTINGS.get(name)
        method: Any = getattr(self, f"do_{name}", None)
        since = {"get_server_status": STATUS_SINCE}.get(name, 0)
        if (method is None and setting is None) or world.version < since:
            return f'Unknown command "{name}"\n'
        if world.refuses_priority and name == "set_default_client_priority":
            return DENIED
        if world.refuses and name.startswith("set_"):
            return DENIED
        try:
            if setting is None:
                return str(method(words, world))
            if "_default_" in name:
                return setting(self._default, words, world)
            # What a server prints when it obeys was not seen.
            return setting(self._of[server_of(words, world)], words[1:], world)
        except NoSuchServerError as said:
            return str(said)

    def do_get_server_list(self, words: list[str], world: SimulatedMpsState) -> str:
        return "".join(f"{server}\n" for server in world.clients)

    def do_get_server_status(self, words: list[str], world: SimulatedMpsState) -> str:
        return world.status.get(server_of(words, world), "ACTIVE") + "\n"

    def do_get_client_list(self, words: list[str], world: SimulatedMpsState) -> str:
        return "".join(f"{pid}\n" for pid in world.clients[server_of(words, world)])

    def do_ps(self, words: list[str], world: SimulatedMpsState) -> str:
        if not world.clients:
            return "Server not found\n"
        head = "PID     ID    SERVER    DEVICE            NAMESPACE    COMMAND\n"
        return head + "".join(
            f"{pid:<7} {at:<5} {server:<9} GPU-0             4026531836   ./client\n"
            for server, pids in world.clients.items() for at, pid in enumerate(pids))

    def do_terminate_client(self, words: list[str], world: SimulatedMpsState) -> str:
        server = int(words[0]) if words and words[0].isdigit() else 0
        if server not in world.clients:
            return f"Server {server} not found\nServer {server} not found!\n1\n"
        client = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if client not in world.clients[server]:
            return f"Invalid process {client}!\n1\n"
        if world.refuses:
            return "1\n"
        if not world.ignores:
            self.let_go(server, client)
        return "0\n"

    def do_start_server(self, words: list[str], world: SimulatedMpsState) -> str:
        return ""

    def do_quit(self, words: list[str], world: SimulatedMpsState) -> str:
        if world.refuses:
            return "Not enough privilege to execute quit command\n"
        until = time.monotonic() + (float(words[1]) if words[:1] == ["-t"] else 3_600)
        while any(self.look().clients.values()) and time.monotonic() <= until:
            time.sleep(LEFT_EVERY_S)
        self.end_servers()
        self.is_over = True
        return ""


def server_of(words: list[str], world: SimulatedMpsState) -> int:
    match = re.match(r"\d+", words[0]) if words else None
    server = int(match[0]) if match else 0
    if server not in world.clients:
        raise NoSuchServerError(f"Server {server} not found\n")
    return server


def percent_of(settings: SimulatedMpsSettings, words: list[str], world: SimulatedMpsState) -> str:
    return percent_line(settings.percent)


def set_percent(settings: SimulatedMpsSettings, words: list[str], world: SimulatedMpsState) -> str:
    match = re.match(r"-?\d+(\.\d+)?", words[0]) if words else None
    value = float(match[0]) if match else 0.0
    if not 0 < value <= 100 or world.keeps:
        return percent_line(settings.percent)
    if not world.ignores:
        settings.percent = value
    return percent_line(value)


def set_memory(settings: SimulatedMpsSettings, words: list[str], world: SimulatedMpsState) -> str:
    """Set it like sscanf("%d %lld"): what does not fit ends it, and an amount that is missing is
    0."""
    first = re.match(r"\d+", words[0]) if words else None
    ordinal = int(first[0]) if first else 0
    whole = first is not None and first[0] == words[0]
    match = re.fullmatch(r"(-?\d+)(.*)", words[1]) if whole and len(words) > 1 else None
    amount = 0
    if match:
        is_gib = match[2][:1].lower() == "g"  # all else is M, K and T and .5G too
        amount = int(match[1]) * (GIB if is_gib else MIB) % 2**64
    if ordinal < 32 and not world.ignores:
        settings.memory[ordinal] = amount
    return ""


def memory_of(settings: SimulatedMpsSettings, words: list[str], world: SimulatedMpsState) -> str:
    amount = settings.memory.get(int(words[0]) if words and words[0].isdigit() else 0, 0)
    if amount == 0:
        return ""
    return f"{amount // GIB}G\n" if amount >= GIB else f"{amount // MIB}M\n"


def priority_of(settings: SimulatedMpsSettings, words: list[str], world: SimulatedMpsState) -> str:
    return f"{settings.priority}\n"


def set_priority(settings: SimulatedMpsSettings, words: list[str], world: SimulatedMpsState) -> str:
    if words not in (["0"], ["1"]):
        return "Invalid priority value - must be 0 or 1!\n"
    if not world.ignores:
        settings.priority = int(words[0])
    return ""


def percent_line(percent: float) -> str:
    return f"{percent:.1f}\n"


# The commands that show or change a setting: of all new servers, or of one, which they name first.
SETTINGS: dict[str, Callable[[SimulatedMpsSettings, list[str], SimulatedMpsState], str]] = {
    "get_default_active_thread_percentage": percent_of,
    "set_default_active_thread_percentage": set_percent,
    "get_active_thread_percentage": percent_of,
    "set_active_thread_percentage": set_percent,
    "get_default_device_pinned_mem_limit": memory_of,
    "set_default_device_pinned_mem_limit": set_memory,
    "get_device_pinned_mem_limit": memory_of,
    "set_device_pinned_mem_limit": set_memory,
    "get_default_client_priority": priority_of,
    "set_default_client_priority": set_priority,
}
