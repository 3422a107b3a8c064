"""Writes the files of a service, makes its user and starts it."""

import os
import pwd
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.keys import EnrolmentToken
from gpudeck.service.units import (
    CONFIG,
    GRANT,
    PACKAGED,
    ServiceRole,
    config_text,
    files,
    is_alone,
    merged_config,
)
from gpudeck.settings import folder

# Hidden from services by our own units; the last two are also emptied.
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
LOG_LINES = 5  # of a service that does not start
CONNECTION_WITHIN_S = 12.0  # three seconds for a first reading, five for the connection


@dataclass(frozen=True, slots=True)
class Machine:
    """A place to install to: this machine, or the root folder of an image."""

    root: Path

    @property
    def is_image(self) -> bool:
        return self.root != Path("/")

    @property
    def runs_systemd(self) -> bool:
        return not self.is_image and Path("/run/systemd/system").is_dir()

    def path(self, path: PurePosixPath | str) -> Path:
        return self.root / str(path).lstrip("/")


def install(machine: Machine, role: ServiceRole, program: str, settings: Mapping[str, str],
            grants: Collection[str], is_in_pool: bool, token: str | None, starts: bool
            ) -> list[str]:
    """Install the service; return what was done, a line each. Existing settings stay; what they
    lack is added, and an agent that was alone may get its hub."""
    _check(machine, program, token, starts)
    _check_values(role, settings, token)
    settings = {**settings, **{name: _absolute_path(machine, name, settings[name])
                               for name in role.file_settings if name in settings}}
    texts = dict(files(role, program, grants))
    _add_user(machine, role, texts.get(role.users_file))
    if not machine.is_image:  # there its future owner is not known
        _check_runs(role, program)
        for name in role.file_settings:
            if name in settings:
                _check_readable(role, settings[name])
    report = _write_config(machine, role, settings, is_in_pool)
    if not machine.is_image:
        _check_readable(role, str(role.config))
    drop_ins = machine.path(role.drop_ins)
    for name in role.grants:
        (drop_ins / f"{name}.conf").unlink(missing_ok=True)
    for path, text in texts.items():
        _write(machine.path(path), text)
        report.append(f"wrote {machine.path(path)}")
    if token is not None:
        report.append(f"wrote {_write_token(machine, role, token)}")
    if machine.runs_systemd:
        run_program("systemctl", "daemon-reload")
    run_program("systemctl", f"--root={machine.root}", "enable", "--quiet", role.unit)
    if not starts:
        return [*report, f"{role.unit} starts at the next boot"]
    _start(role)
    return [*report, f"started {role.unit}", *_connection(role)]


def _start(role: ServiceRole) -> None:
    """Start the unit. It is of Type=notify: systemctl waits until it reports that it has started,
    or fails."""
    try:
        run_program("systemctl", "restart", role.unit)
    except CommandError as error:
        journal = subprocess.run(
            ["journalctl", "--unit", role.unit, "--identifier", "gpudeck", "--output", "cat",
             "--no-pager", "--lines", str(LOG_LINES)], capture_output=True, text=True)
        raise CommandError(
            f"{role.unit} does not start, and systemd tries again and again:\n"
            f"{journal.stdout.strip() or error}\nMend {role.config}, then: systemctl restart "
            f"{role.unit}. To stop it: systemctl disable --now {role.unit}",
            ExitCode.CANNOT_START) from error


def _connection(role: ServiceRole) -> list[str]:
    """Return what the service says of its connection after its first attempt. It tries again by
    itself, so that a failure is none of the installation."""
    if not role.reports_connection:
        return []
    status, until = "", time.monotonic() + CONNECTION_WITHIN_S
    while time.monotonic() < until and (not status or status.startswith("connecting ")):
        time.sleep(0.25)
        status = subprocess.run(
            ["systemctl", "show", "--property", "StatusText", "--value", role.unit],
            capture_output=True, text=True).stdout.strip()
    return [status] if status else []


def present_grants(machine: Machine, role: ServiceRole, gets_hub: bool
                   ) -> tuple[str, ...] | None:
    """Return the grants of an installation that is there, which installing again without `--grant`
    does not change. None: there is none, or an agent that was alone, with the grants that such an
    agent gets by default, gets its hub."""
    names = tuple(name for name in role.grants
                  if machine.path(role.drop_ins / f"{name}.conf").exists())
    config = machine.path(role.config)
    # The unit of a package is there before any installation.
    is_installed = machine.path(role.unit_file).exists() or (
        machine.path(PACKAGED).exists() and config.exists())
    if not names and not is_installed:
        return None
    if (gets_hub and names == role.default_grants_alone and config.exists()
            and is_alone(role, config.read_text(errors="replace"))):
        return None
    return names


def missing_grants(role: ServiceRole, grants: Collection[str]) -> list[str]:
    """Return a line for each grant that the service lacks."""
    return [f"not granted: {GRANT[name].without}" for name in role.grants if name not in grants]


def _check(machine: Machine, program: str, token: str | None, starts: bool) -> None:
    need_root()
    if not os.access(machine.path(program), os.X_OK):
        raise CommandError(f"there is no {machine.path(program)}; name the gpudeck command with "
                           "--program", ExitCode.USAGE)
    if hidden := next(filter(_is_hidden, _files_of(machine, program)), None):
        raise CommandError(
            f"{hidden} is in a folder that services cannot see; install gpudeck where they can: "
            "/usr/bin/python3 -m venv /opt/gpudeck, then /opt/gpudeck/bin/pip install the wheel, "
            "then /opt/gpudeck/bin/gpudeck service install", ExitCode.USAGE)
    if machine.is_image and token is not None:
        raise CommandError("a token does not belong into an image; write it on each node",
                           ExitCode.USAGE)
    if starts and not machine.runs_systemd:
        raise CommandError("systemd does not run here; prepare for the next boot with --no-start, "
                           "or an image with --root DIR", ExitCode.CANNOT_START)


def _check_values(role: ServiceRole, settings: Mapping[str, str], token: str | None) -> None:
    """Refuse what the service would not start with, before anything is written."""
    for name, parse in role.parsed_settings.items():
        if name in settings:
            _check_value(parse, settings[name], f"--{name.replace('_', '-')} {settings[name]!r}")
    if token is not None:
        _check_value(EnrolmentToken.read, token, "the token")


def _check_value(parse: Callable[[str], object], value: str, about: str) -> None:
    try:
        parse(value)
    except ValueError as error:
        raise CommandError(f"{about}: {error}", ExitCode.USAGE) from error


def _is_hidden(path: Path | str) -> bool:
    return any(PurePosixPath(path).is_relative_to(hidden) for hidden in HIDDEN)


def _files_of(machine: Machine, program: str) -> list[str]:
    """Return what a start opens: the program, and where it and its Python really are. In an image,
    links lead to another place than here."""
    if machine.is_image:
        return [program]
    python = str(Path(program).with_name("python"))
    return [program, os.path.realpath(program), os.path.realpath(python)]


def _absolute_path(machine: Machine, name: str, value: str) -> str:
    """Return the absolute path of a file that was named relative to the current folder."""
    path = folder(value)
    if not machine.path(str(path)).exists():
        raise CommandError(f"--{name.replace('_', '-')}: there is no {machine.path(str(path))}",
                           ExitCode.USAGE)
    if _is_hidden(path) or (not machine.is_image and _is_hidden(path.resolve())):
        raise CommandError(
            f"--{name.replace('_', '-')}: {path} is in a folder that services cannot see, or that "
            f"is emptied; copy it to {CONFIG}/ and name it there", ExitCode.USAGE)
    return str(path)


def _add_user(machine: Machine, role: ServiceRole, text: str | None) -> None:
    """Create the user. `text` None: the file that describes it belongs to a package."""
    if text is not None:
        _write(machine.path(role.users_file), text)
    run_program("systemd-sysusers", f"--root={machine.root}", role.users_file.name)


def _check_runs(role: ServiceRole, program: str) -> None:
    """Check that the service can run its program: with a closed umask, root makes an environment
    that nobody else can read."""
    if _as_user(role, program, "--version"):
        environment = str(Path(program).parents[1])
        cure = _enter_words(role, environment) or (
            f"Let others read its environment: chmod -R a+rX {environment}")
        raise CommandError(f"the user {role.user}, as which the service runs, cannot run "
                           f"{program}. {cure}; then install again", ExitCode.USAGE)


def _check_readable(role: ServiceRole, path: str) -> None:
    """Check that the service can read a file."""
    if _as_user(role, "test", "-r", path):
        cure = _enter_words(role, path) or (
            f"Give it to that group: chgrp {role.user} {path} && chmod g+r {path}")
        raise CommandError(f"the user {role.user}, as which the service runs, cannot read {path}. "
                           f"{cure}; then install again", ExitCode.USAGE)


def _enter_words(role: ServiceRole, path: str) -> str:
    """Return what opens the folder that keeps the service from a file; "": none does."""
    closed = next((folder for folder in reversed(Path(path).parents)
                   if _as_user(role, "test", "-x", str(folder))), None)
    return "" if closed is None else f"Let others enter its folder: chmod a+x {closed}"


def _as_user(role: ServiceRole, *words: str) -> int:
    """Run a program as the service's user; return its exit code."""
    user = pwd.getpwnam(role.user)
    try:
        return subprocess.run(
            words, user=user.pw_uid, group=user.pw_gid, cwd="/", capture_output=True,
            extra_groups=os.getgrouplist(user.pw_name, user.pw_gid)).returncode
    except PermissionError:
        return 126  # as a shell says it


def need_root() -> None:
    if os.geteuid() != 0:
        raise CommandError("this writes to /etc; run it as root", ExitCode.USAGE)


def _write_config(machine: Machine, role: ServiceRole, settings: Mapping[str, str],
                  is_in_pool: bool) -> list[str]:
    path = machine.path(role.config)
    if not path.exists():
        text = config_text(role, settings, is_in_pool)
        if role.has_secrets:
            _write(path, text, 0o640, (0, _group_of(machine, role)))
        else:
            _write(path, text)
        return [f"wrote {path}"]
    try:
        config, added = merged_config(role, path.read_text(), {
            **settings, **(role.pool_settings if is_in_pool else {})})
    except ValueError as error:
        raise CommandError(f"{path} {error}", ExitCode.USAGE) from error
    if not added:
        return [f"kept {path}"]
    if path.is_symlink():
        raise CommandError(f"{path} is a link and stays as it is; what it leads to lacks "
                           f"{', '.join(added)}: write that there", ExitCode.USAGE)
    there = path.stat()  # closed to others, perhaps: it may hold a secret
    _write(path, config, stat.S_IMODE(there.st_mode), (there.st_uid, there.st_gid))
    return [f"changed {path}: " + ("it has a hub now" if "hub" in added
                                   else f"added {', '.join(added)}")]


def _write(path: Path, text: str, mode: int = 0o644, owner: tuple[int, int] | None = None) -> None:
    draft = path.with_name(f".{path.name}.new")
    try:
        _make_folder(path.parent)
        draft.unlink(missing_ok=True)
        with open(draft, "w", opener=lambda name, flags: os.open(
                name, flags | os.O_EXCL | os.O_NOFOLLOW, mode)) as file:
            file.write(text)
        if owner is not None:
            os.chown(draft, *owner)
        draft.chmod(mode)
        draft.replace(path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}; free some space or mend the "
                           "disk, then install again", ExitCode.CANNOT_START) from error


def _make_folder(path: Path) -> None:
    """Make a folder that services can enter, whatever umask root has."""
    if not path.exists():
        _make_folder(path.parent)
        path.mkdir()
        path.chmod(0o755)


def _write_token(machine: Machine, role: ServiceRole, token: str) -> Path:
    """Write the token in the service's own folder, where nobody else reads it."""
    user = pwd.getpwnam(role.user)
    folder = machine.path(role.state)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(folder, user.pw_uid, user.pw_gid)
    path = folder / "enrolment.token"
    _write(path, f"{token}\n", 0o600)
    os.chown(path, user.pw_uid, user.pw_gid)
    return path


def _group_of(machine: Machine, role: ServiceRole) -> int:
    """Return the number of the service's group, which an image has in its own file."""
    lines = machine.path("/etc/group").read_text().splitlines()
    return next(int(line.split(":")[2]) for line in lines if line.startswith(f"{role.user}:"))


def run_program(*words: str, fails: bool = False) -> None:
    """Run a program. `fails`: it may, as there may be nothing to do."""
    try:
        process = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise CommandError(f"{words[0]} is not installed: this needs systemd",
                           ExitCode.CANNOT_START) from error
    if process.returncode and not fails:
        raise CommandError(f"{' '.join(words)}: {process.stderr.strip() or process.returncode}")
