"""Files for systemd of each service: unit, drop-ins, user. Pure."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from gpudeck.settings import address, flag, hub_urls

CONFIG = PurePosixPath("/etc/gpudeck")
UNITS = PurePosixPath("/etc/systemd/system")
USERS = PurePosixPath("/etc/sysusers.d")
STATE = PurePosixPath("/var/lib")
PACKAGED = PurePosixPath("/usr/lib/gpudeck/bin/gpudeck")  # of the Debian package, with its units


@dataclass(frozen=True, slots=True)
class ServiceGrant:
    """A drop-in that gives the service more; `without` says what is missing when it is left out."""

    name: str
    capabilities: tuple[str, ...]
    gives: str
    without: str
    lines: tuple[str, ...] = ()


GRANTS: tuple[ServiceGrant, ...] = (
    ServiceGrant("act", ("CAP_KILL",), "pause and end tasks of other users",
                 "only its own user's tasks can be paused or ended"),
    # environ, file descriptors and io of another user's process need both.
    ServiceGrant("owners", ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"),
                 "read job ids, notebooks and sockets of other users' tasks; it can then read "
                 "every file",
                 "tasks of other users lack their Slurm job, notebook and launch"),
    ServiceGrant("limits", ("CAP_SYS_ADMIN",),
                 "set power caps, clock locks and compute modes, and read what the driver denies "
                 "to others", "limits of GPUs cannot be set"),
    # Group tty, as of `write` and `wall`: terminals take it while their user lets them (mesg y).
    ServiceGrant("terminals", (), "write messages to terminals of users",
                 "nobody is notified at their terminal: owners of tasks learn nothing beforehand "
                 "unless the hub mails them",
                 ("SupplementaryGroups=tty", "DeviceAllow=char-tty w")),
    ServiceGrant("births", ("CAP_NET_ADMIN",),
                 "before kernel 6.6: see children that a task starts while it is being ended",
                 "before kernel 6.6, such children may survive; the outcome lists them",
                 ("RestrictAddressFamilies=AF_NETLINK",)),
)
# Settings of an agent without a hub. Those that stay when it joins one are in its file too.
ALONE: Mapping[str, str] = {"alone": "yes", "local_claims": "yes"}
GRANT: Mapping[str, ServiceGrant] = {grant.name: grant for grant in GRANTS}


@dataclass(frozen=True, slots=True)
class ServiceRole:
    """A service; one row each. `grants`: all that may be granted to it; `default_grants`: those it
    gets by default."""

    name: str
    about: str
    settings: tuple[str, ...]  # that `install` takes; all others are added to its file
    file_settings: tuple[str, ...]  # of these, those that name a file
    parsed_settings: Mapping[str, Callable[[str], object]]  # of these, those checked here
    pool_settings: Mapping[str, str]
    grants: tuple[str, ...] = ()
    default_grants: tuple[str, ...] = ()
    default_grants_alone: tuple[str, ...] = ()  # without a hub
    lines: tuple[str, ...] = ()
    runtime: PurePosixPath | None = None  # systemd leaves it until the next boot
    reports_connection: bool = False  # in its status, by which `install` shows it
    # What undoes what was left on this machine before the service is removed, as "module:function":
    # it gets the data folder, and returns what it did and what it could not undo, in sentences.
    farewell: str = ""
    has_secrets: bool = False  # among its settings: its file is for root and the service alone

    @property
    def unit(self) -> str:
        return f"gpudeck-{self.name}"

    @property
    def user(self) -> str:
        return self.unit

    @property
    def unit_file(self) -> PurePosixPath:
        return UNITS / f"{self.unit}.service"

    @property
    def drop_ins(self) -> PurePosixPath:
        return UNITS / f"{self.unit}.service.d"

    @property
    def users_file(self) -> PurePosixPath:
        return USERS / f"{self.unit}.conf"

    @property
    def config(self) -> PurePosixPath:
        return CONFIG / f"{self.name}.toml"

    @property
    def state(self) -> PurePosixPath:
        return STATE / self.unit


HUB = ServiceRole(
    "hub", "gpudeck hub: pages, API and live socket",
    ("bind", "public_url", "tls_cert", "tls_key", "trusted_proxies"), ("tls_cert", "tls_key"),
    {"bind": address}, {"pool": "on"},
    lines=("PrivateTmp=yes", "PrivateDevices=yes", "PrivateUsers=yes", "ProcSubset=pid",
           "ProtectProc=invisible", "OOMScoreAdjust=-100",
           # The process that signs commands leaves the network by namespaces of its own.
           "RestrictNamespaces=user net",
           "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "LimitNOFILE=65536",
           # A large state is read, and migrated, before it answers.
           "TimeoutStartSec=600", "WatchdogSec=300", "TimeoutStopSec=30"),
    has_secrets=True)
# Never for the agent: PrivateUsers (capabilities would count only inside), ProtectProc and
# ProcSubset (it reads others' /proc), PrivateDevices (it needs /dev/nvidia*), PrivateTmp (MPS has
# its pipes in /tmp/nvidia-mps, where all its clients look for them).
AGENT = ServiceRole(
    "agent", "gpudeck agent: reports this machine's GPUs",
    ("hub", "ca_file", "metrics"), ("ca_file",),
    {"hub": hub_urls, "metrics": address, "alone": flag, "local_claims": flag},
    {"pool_socket": "/run/gpudeck/pool.sock"},
    grants=("act", "terminals", "owners", "limits", "births"), default_grants=("act", "terminals"),
    default_grants_alone=("terminals",),  # nobody orders actions from it
    lines=("DevicePolicy=closed", "DeviceAllow=char-nvidia* rw", "DeviceAllow=char-drm rw",
           "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
           "RestrictNamespaces=yes", "ReadWritePaths=/tmp -/var/log/nvidia-mps",
           "RuntimeDirectory=gpudeck", "RuntimeDirectoryMode=0755",
           "RuntimeDirectoryPreserve=yes", "OOMScoreAdjust=-500",
           # A restart of the agent must not take MPS daemons along, nor their clients' work.
           "KillMode=process", "WatchdogSec=120", "TimeoutStopSec=15"),
    runtime=PurePosixPath("/run/gpudeck"), reports_connection=True,
    farewell="gpudeck.agent.actions.farewell:undo_all")
ROLES: Mapping[str, ServiceRole] = {role.name: role for role in (HUB, AGENT)}

_BOTH = (
    "AmbientCapabilities=", "CapabilityBoundingSet=",  # none, and drop-ins add to it
    "UMask=0077", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes",
    "PrivateMounts=yes", "RemoveIPC=yes", "MemoryDenyWriteExecute=yes",
    "LimitCORE=0",  # its keys are in memory
    "ProtectKernelModules=yes", "ProtectKernelTunables=yes",
    "ProtectKernelLogs=yes", "ProtectControlGroups=yes", "ProtectClock=yes",
    "ProtectHostname=yes", "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes", "LockPersonality=yes", "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service", "SystemCallFilter=~@privileged @resources",
    # Both change limits of their own: by prlimit64, as glibc does, which is always allowed.
    "SystemCallErrorNumber=EPERM")


def unit_text(role: ServiceRole, program: str) -> str:
    return "\n".join([
        f"# Changes of your own belong into {role.drop_ins}/,",
        f"# where they survive an upgrade and `gpudeck service install {role.name}`.",
        "[Unit]",
        f"Description={role.about}",
        "Wants=network-online.target",
        "After=network-online.target nvidia-persistenced.service",
        "",
        "[Service]",
        "Type=notify",
        f"ExecStart={program} {role.name} --config {role.config} --data {role.state}",
        f"User={role.user}",
        f"StateDirectory={role.unit}",
        "StateDirectoryMode=0700",
        "Restart=always",
        "RestartSec=10",
        *role.lines,
        *_BOTH,
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        ""])


def drop_in_text(role: ServiceRole, grant: ServiceGrant) -> str:
    """Return the text of a drop-in. Lists of capabilities and of address families add up over the
    files."""
    names = " ".join(grant.capabilities)
    capabilities = [f"{name}={names}" for name in ("AmbientCapabilities", "CapabilityBoundingSet")
                    if names]  # an empty list would take away those of other files
    return "\n".join([
        f"# To {grant.gives}.",
        f"# Without this file: {grant.without}.",
        "[Service]", *capabilities, *grant.lines, ""])


def sysusers_text(role: ServiceRole) -> str:
    return f'u {role.user} - "gpudeck {role.name}" {role.state} -\n'


def config_text(role: ServiceRole, settings: Mapping[str, str], is_in_pool: bool) -> str:
    values = {**settings, **(role.pool_settings if is_in_pool else {})}
    return "\n".join([
        "# Settings of the service; docs/settings.md lists all of them. After a change:",
        f"# systemctl restart {role.unit}",
        f"[{role.name}]",
        *(f"{name} = {_quoted(value)}" for name, value in values.items()), ""])


def merged_config(role: ServiceRole, text: str, settings: Mapping[str, str]
                  ) -> tuple[str, list[str]]:
    """Return the file with those of `settings` that it lacks, and their names. Only an agent that
    was alone gets others, with its hub. Raises ValueError where the file says something else."""
    import tomllib  # `gpudeck top` must be there at once

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from error
    section = document.get(role.name, {})
    if not isinstance(section, dict):
        raise ValueError(f"has no table [{role.name}], but {role.name} = {section!r}")
    former: tuple[str, ...] = ()
    if "hub" in settings and _is_alone(section):
        settings = {name: value for name, value in settings.items()
                    if name not in role.pool_settings or name not in section}
        former = ("alone", *settings)
        section = {name: value for name, value in section.items() if name not in former}
    elif "alone" in settings and "hub" in section:
        raise ValueError("has a hub and stays as it is; for an agent without one, take `hub` out "
                         "there")
    for name, value in settings.items():
        if name in section and not _is_same(role, name, section[name], value):
            raise ValueError(f"has {name} = {section[name]!r} and stays as it is; change it there, "
                             f"then: systemctl restart {role.unit}")
    added = [name for name in settings if name not in section]
    if not added:
        return text, added
    own = [f"{name} = {_quoted(settings[name])}" for name in added]
    merged = _with_lines(text, role.name, former, own)
    goal = {**document, role.name: {**section, **{name: settings[name] for name in added}}}
    try:
        is_right = tomllib.loads(merged) == goal
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:  # a table or a value is written in another way
        raise ValueError(f"is written in a way that is not changed here; write there, in "
                         f"[{role.name}]{', without `alone`' if former else ''}: {'; '.join(own)}")
    return merged, added


def is_alone(role: ServiceRole, text: str) -> bool:
    """Return whether this file is of an agent without a hub."""
    import tomllib

    try:
        section = tomllib.loads(text).get(role.name)
    except tomllib.TOMLDecodeError:
        return False
    return isinstance(section, dict) and _is_alone(section)


def _is_alone(section: Mapping[str, object]) -> bool:
    return "alone" in section and "hub" not in section


def _with_lines(text: str, table: str, former: Collection[str], own: Sequence[str]) -> str:
    """Return the text with these lines in its table, and without those of the keys `former`."""
    # By line feeds alone: a comment or a string may hold other separators of lines.
    lines = text.removesuffix("\n").split("\n")
    title = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]\s*(#.*)?")
    at = next((at for at, line in enumerate(lines, 1) if title.fullmatch(line)), None)
    if at is None:
        return "\n".join([*lines, f"[{table}]", *own, ""])
    end = next((end for end in range(at, len(lines)) if lines[end].lstrip().startswith("[")),
               len(lines))
    key = re.compile(rf"\s*({'|'.join(map(re.escape, former)) or '(?!)'})\s*=")
    rest = [line for line in lines[at:end] if not key.match(line)]
    return "\n".join([*lines[:at], *own, *rest, *lines[end:], ""])


def _is_same(role: ServiceRole, name: str, there: object, value: str) -> bool:
    """Return whether the file has this value, which may be written in another way."""
    raw = ",".join(map(str, there)) if isinstance(there, list) else str(there)
    parse = role.parsed_settings.get(name, str)
    try:
        return parse(raw) == parse(value)
    except ValueError:
        return False


def _quoted(value: str) -> str:
    """Quote a TOML string."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def files(role: ServiceRole, program: str, grants: Collection[str]
          ) -> Sequence[tuple[PurePosixPath, str]]:
    """Return all files but the settings, which are the administrator's once they exist; for a
    program from a package, without those that the package has."""
    own = [] if program == str(PACKAGED) else [
        (role.unit_file, unit_text(role, program)), (role.users_file, sysusers_text(role))]
    return [*own, *((role.drop_ins / f"{name}.conf", drop_in_text(role, GRANT[name]))
                    for name in role.grants if name in grants)]
