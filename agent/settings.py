"""Settings of `gpudeck agent`, `status` and `tasks`."""

import os
import socket
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudeck.errors import CommandError, ExitCode
from gpudeck.service.installed import is_installed, state_here
from gpudeck.settings import (
    Setting,
    address,
    count,
    flag,
    folder,
    hub_url,
    hub_urls,
    load,
    parser,
    read_secret,
    resolve,
    state_folder,
    text,
)

from .backends import BACKENDS, backend_named
from .runtime.data_lock import agent_pid

if TYPE_CHECKING:
    from gpudeck.client.hub import Client
    from gpudeck.network.keys import EnrolmentToken

LIVE_BACKENDS = ("auto", *(backend.name for backend in BACKENDS.values()
                           if not backend.capabilities.plays_file))
ALL_BACKENDS = ("auto", *BACKENDS)


def speed(raw: str) -> float:
    try:
        number = float(raw)
    except ValueError:
        number = 0.0
    if not 0.25 <= number <= 60:
        raise ValueError("a number from 0.25 to 60 is needed")
    return number


def host_name(raw: str) -> str:
    if not raw or len(raw) > 128:
        raise ValueError("a name of 1 to 128 characters is needed")
    return raw


def _backend_setting(choices: tuple[str, ...]) -> Setting:
    either = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return Setting("backend", text, "auto", f"where readings come from: {either}", choices=choices)


def first_hub(raw: str) -> str:
    """Return the first hub of those that an agent's settings may name."""
    return hub_urls(raw)[0]


HUB = Setting("hub", first_hub, "http://127.0.0.1:8050", "the hub this node reports to")
DEFAULT_HUBS = ("http://127.0.0.1:8050",)
HUBS = Setting("hub", hub_urls, None,
               "the hub this node reports to; several URLs of it, comma-separated, are tried in "
               "order", default_words=DEFAULT_HUBS[0])
# A path, not the secret: a secret must never be a process argument. GPUDECK_TOKEN itself
# is read too, but only from the environment.
TOKEN_FILE = Setting("token_file", folder, None,
                     "file with the token for the hub; overrides GPUDECK_TOKEN")
ENROL_FILE = Setting("token_file", folder, None, "for the first start: file with the enrolment "
                                                 "token; overrides GPUDECK_TOKEN")
CA_FILE = Setting("ca_file", folder, None,
                  "PEM file of the CA that issued the hub's certificate, if it is not in the "
                  "system store")
BACKEND = _backend_setting(LIVE_BACKENDS)
SIMULATE = Setting(
    "simulate", text, "", "options of the simulated backend, for example 'gpus=8 profile=h100'")
CEILING = Setting("ceiling", folder, None, "file that limits what any hub may do on this node",
                  default_words="/etc/gpudeck/ceiling.toml if it is there")
DATA_HERE = "the installed service's; if there is none, $XDG_STATE_HOME/gpudeck/agent"
TABLE: tuple[Setting, ...] = (
    HUBS,
    ENROL_FILE,
    CA_FILE,
    _backend_setting(ALL_BACKENDS),
    SIMULATE,
    Setting("replay", folder, None, "with --backend recorded: the recording to play"),
    Setting("replay_speed", speed, 1.0, "playback speed, 0.25 to 60 times"),
    Setting("replay_loop", flag, False, "start over at the end of the recording"),
    Setting("record", folder, None,
            "file to record all readings to; compressed where its name ends in .gz"),
    Setting("record_max_mib", count, 1_024, "stop recording at this file size in MiB"),
    Setting("host", host_name, None, "the name shown for this node",
            default_words="this machine's"),
    Setting("data", folder, None, "folder for state that survives restarts",
            default_words="$XDG_STATE_HOME/gpudeck/agent"),
    CEILING,
    Setting("alone", flag, False, "without a hub: lease this machine's GPUs to its users, at "
            "/run/gpudeck/pool.sock as root, else at a socket of your own"),
    Setting("pipe", flag, False,
            "serve the notebook that started this agent, over stdin and stdout, without a hub"),
    Setting("metrics", address, None, "HOST:PORT for Prometheus to scrape this node without a "
                                      "token; "
                                      "recommended: 127.0.0.1:9400", default_words="nowhere"),
    Setting("pool_socket", folder, None, "Unix socket for `gpudeck run` and `gpudeck claim`; "
                                         "recommended: /run/gpudeck/pool.sock",
            default_words="none: this node leases no GPUs"),
    Setting("managed_by", text, "", "the scheduler that assigns this node's GPUs, such as Slurm: "
            "the pool shows them and leases none", default_words="none"),
    Setting("local_claims", flag, False, "lease GPUs even while no hub decides"),
    Setting("exclusive_leases", flag, False, "set whole GPUs to exclusive-process mode while they "
            "are leased: no second process can start there"),
    Setting("memory_limits", flag, False, "let the driver limit the GPU memory of shares, and of "
            "quotas in mode act, by control group: from driver 615 on, with cgroup v2; not "
            "verified on hardware"),
    Setting("serving_metrics", flag, False, "read the /metrics of engines that serve models on "
            "this node (vLLM, SGLang, TensorRT-LLM, Triton, TGI, llama.cpp): tokens, latency"),
    Setting("nccl_ras", flag, False, "ask NCCL (2.28.7 and later) which rank the others wait for, "
            "where a job on this node looks stuck: its RAS service, at a port of this machine"),
    Setting("slurm", flag, False, "read the jobs and nodes of Slurm by its own programs and tell "
            "the hub; on one node of the cluster, which the hub's setting slurm_nodes names"),
    Setting("kubernetes", text, "", "read the pods and nodes of Kubernetes from this API server "
            "and tell the hub: `cluster` in a pod, otherwise https://HOST:PORT; on one node, "
            "which the hub's setting kubernetes_nodes names", default_words="none"),
    Setting("kubernetes_token_file", folder, None, "its token, read again each time",
            default_words="none; in a pod its service account's"),
    Setting("kubernetes_ca_file", folder, None, "certificates to verify it with",
            default_words="the system's; in a pod its service account's"),
    Setting("kubelet_socket", folder, None, "socket of this node's kubelet, to know which GPUs "
            "each pod holds; usual: /var/lib/kubelet/pod-resources/kubelet.sock",
            default_words="none: only GPUs with a process of the pod are known"),
    Setting("pool_unused_s", count, 900, "notify the owner of leased but unused GPUs after "
            "this many seconds; after a third more they are released"),
    Setting("forget_hub", flag, False,
            "forget the hub; with a token, enrol with the hub that issued it"),
)

SHOW_TABLE: tuple[Setting, ...] = (
    Setting("hub", hub_url, None, "ask this hub about its fleet; default: this machine"),
    TOKEN_FILE,
    CA_FILE,
    BACKEND,
    SIMULATE,
    Setting("data", folder, None, "without --hub: the folder of this machine's agent",
            default_words=DATA_HERE),
    Setting("json", flag, False, "JSON, shaped like the REST interface, instead of a table"),
)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Settings for a connection to a hub, or for this machine without one."""

    hub: str | None
    token: Callable[[], str]
    ca_file: Path | None
    data: Path
    names_data: bool  # the folder was given, and is not the default one
    backend: str
    simulate: str
    ceiling: Path | None
    json: bool

    def client(self, keeps: str = "answers") -> "Client":
        """Return a client of the hub. `keeps`: what only a hub stores, for the error message.
        Raises CommandError where no hub is named."""
        from gpudeck.client.hub import Client, tls_context  # a daemon need not load it

        if self.hub is None:
            raise CommandError(f"name the hub with --hub: it stores the {keeps}", ExitCode.USAGE)
        return Client(self.hub, self.token(), tls=tls_context(self.hub, self.ca_file))


@dataclass(frozen=True, slots=True)
class AgentSettings:
    hub: tuple[str, ...]
    token_file: Path | None
    ca_file: Path | None
    backend: str
    simulate: str
    host: str
    data: Path
    ceiling: Path | None = None
    forget_hub: bool = False
    replay: Path | None = None
    replay_speed: float = 1.0
    replay_loop: bool = False
    alone: bool = False
    record: Path | None = None
    record_max_mib: int = 1_024
    pipe: bool = False
    metrics: tuple[str, int] | None = None
    pool_socket: Path | None = None
    managed_by: str = ""
    local_claims: bool = False
    exclusive_leases: bool = False
    memory_limits: bool = False
    serving_metrics: bool = False
    nccl_ras: bool = False
    slurm: bool = False
    kubernetes: str = ""
    kubernetes_token_file: Path | None = None
    kubernetes_ca_file: Path | None = None
    kubelet_socket: Path | None = None
    pool_unused_s: int = 900

    @property
    def reader_options(self) -> str:
        if self.replay is None:
            return self.simulate
        return options_of(self.replay, self.replay_speed, self.replay_loop)


def read(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> AgentSettings:
    values = load("agent", TABLE, argv, env, "The daemon of one node: reads its GPUs and reports "
                                             "them.")
    values["host"] = values["host"] or this_host()
    values["data"] = values["data"] or (
        _agent_folder(env) if values["pipe"] else state_folder("agent", env))
    _resolve_hub(values, env)
    plays_file = backend_named(values["backend"]).capabilities.plays_file
    if plays_file != (values["replay"] is not None):
        raise CommandError("--backend recorded and --replay FILE belong together", ExitCode.USAGE)
    return AgentSettings(**values)


def _resolve_hub(values: dict[str, Any], env: Mapping[str, str]) -> None:
    """Fill in the hub. An agent that runs alone has none, and leases GPUs by itself."""
    if not values["alone"]:
        values["hub"] = values["hub"] or DEFAULT_HUBS
        return
    for name in ("hub", "token_file", "pipe"):
        if values[name]:
            raise CommandError(f"--alone is without a hub; leave --{name.replace('_', '-')} out",
                               ExitCode.USAGE)
    from gpudeck.pool.connection import new_socket  # commands that only read do not need it

    values["hub"], values["local_claims"] = (), True
    values["pool_socket"] = values["pool_socket"] or new_socket(env)


def read_reach(program: str, table: Sequence[Setting], args: Namespace, env: Mapping[str, str]
               ) -> ConnectionSettings:
    """Return connection settings from a table that may lack some of them."""
    values = resolve(program, table, vars(args), env)
    data = values.get("data")
    return ConnectionSettings(values["hub"], token_source(values["token_file"], env),
                              values["ca_file"], data or _agent_folder(env), data is not None,
                              values.get("backend", "auto"), values.get("simulate", ""),
                              values.get("ceiling"), values["json"])


def _agent_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of the agent beside which a command acts: for root the installed service's,
    where a hub's hold, the budget and the lock of actions are. Nobody else can enter that one."""
    return state_here("agent", env) if os.geteuid() == 0 else state_folder("agent", env)


def closed_here(reach: ConnectionSettings) -> str:
    """Return why it is not known what this machine's agent has set, for people; "": it is known."""
    if (reach.names_data or os.geteuid() == 0 or not is_installed("agent")
            or agent_pid(reach.data) is not None):
        return ""
    return ("the agent of this machine is a service, and what it has set is closed to this user; "
            "run this as root, or ask its hub with --hub")


def read_show(program: str, argv: Sequence[str], env: Mapping[str, str] = os.environ
              ) -> ConnectionSettings:
    args = parser(program, SHOW_TABLE, "").parse_args(list(argv))
    reach = read_reach(program, SHOW_TABLE, args, env)
    return reach if reach.names_data else replace(reach, data=state_here("agent", env))


def this_host() -> str:
    return socket.gethostname()[:128] or "localhost"


def token_source(token_file: Path | None, env: Mapping[str, Any]) -> Callable[[], str]:
    """Return a function that gives the token. The first read happens here, so that a wrong path is
    reported at once. A pipe, such as `<(…)` in a shell, can be read only once; a file may be
    renewed."""
    if token_file is None:
        token = str(env.get("GPUDECK_TOKEN", ""))
        return lambda: token
    first = read_secret(token_file)
    return (lambda: read_secret(token_file)) if token_file.is_file() else (lambda: first)


def enrolment_tokens(token_file: Path | None, env: Mapping[str, str]) -> "list[EnrolmentToken]":
    """Return the tokens that were given: one for this node; for a simulator, one per line and
    node."""
    if token_file is None:
        return read_tokens(env.get("GPUDECK_TOKEN", ""), "GPUDECK_TOKEN: ")
    return read_tokens(read_secret(token_file), f"{token_file}: ")


def read_tokens(raw: str, where: str) -> "list[EnrolmentToken]":
    from gpudeck.network.keys import EnrolmentToken  # its library takes long to load

    try:
        return [EnrolmentToken.read(word) for word in raw.split()]
    except ValueError as error:
        raise CommandError(f"{where}{error}", ExitCode.USAGE) from error


def options_of(path: Path, speed: float, loops: bool) -> str:
    return f"{speed!r} {'loops' if loops else 'once'} {path}"
