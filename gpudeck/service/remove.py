"""Removes a service with all that installing has written, and undoes what it has left on the
machine."""

import shutil
import subprocess
from importlib import import_module
from pathlib import Path

from gpudeck.errors import CommandError, ExitCode
from gpudeck.service.install import Machine, need_root, run_program
from gpudeck.service.units import CONFIG, PACKAGED, ServiceRole


def uninstall(machine: Machine, role: ServiceRole, purges: bool) -> list[str]:
    """Stop it and remove what `install` wrote; settings, data and user only if `purges`."""
    need_root()
    if machine.runs_systemd:
        run_program("systemctl", "disable", "--now", "--quiet", role.unit, fails=True)
    else:
        run_program("systemctl", f"--root={machine.root}", "disable", "--quiet", role.unit,
                    fails=True)
    report = _let_go(machine, role, purges)
    for path in map(machine.path, (role.unit_file, role.users_file)):
        if path.exists():
            path.unlink()
            report.append(f"removed {path}")
    _remove_grants(machine, role)
    if machine.runs_systemd:
        run_program("systemctl", "daemon-reload")
    remaining = [machine.path(path) for path in (role.config, role.state)
                 if machine.path(path).exists()]
    _forget_hub_hold(machine, role)
    if not purges:
        return report + [f"kept {path}; --purge deletes it" for path in remaining]
    if role.runtime is not None and machine.path(role.runtime).is_dir():
        remaining.append(machine.path(role.runtime))
    report += map(_delete, remaining)
    folder = machine.path(CONFIG)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if _has_user(machine, role) and not machine.path(PACKAGED).exists():  # else the package's
        where = ["--root", str(machine.root)] if machine.is_image else []
        run_program("userdel", *where, role.user)
        report.append(f"removed the user {role.user}")
    return report


def undo(machine: Machine, role: ServiceRole) -> tuple[list[str], list[str]]:
    """Undo what a service that does not run has left on this machine, and remove nothing else:
    what removes the files of a package comes after this. Return a sentence for each thing undone,
    and one for each that stays."""
    need_root()
    if machine.runs_systemd and _runs(role):
        raise CommandError(f"{role.unit} runs, and would set its limits again; stop it before: "
                           f"systemctl stop {role.unit}", ExitCode.REFUSED)
    report, remaining = _farewell(machine, role)
    _forget_hub_hold(machine, role)
    return report, remaining


def _let_go(machine: Machine, role: ServiceRole, purges: bool) -> list[str]:
    """Undo what nothing would undo once the service is removed. Raises CommandError where that
    fails and its journal would be deleted, by which somebody could mend it."""
    report, remaining = _farewell(machine, role)
    if remaining and purges:
        raise CommandError("\n".join([*report, *remaining, "nothing was deleted"]),
                           ExitCode.REFUSED)
    return [*report, *remaining]


def _farewell(machine: Machine, role: ServiceRole) -> tuple[list[str], list[str]]:
    if not role.farewell:
        return [], []
    module, _, name = role.farewell.partition(":")
    report: list[str]
    remaining: list[str]
    report, remaining = getattr(import_module(module), name)(machine.path(role.state))
    return report, remaining


def _forget_hub_hold(machine: Machine, role: ServiceRole) -> None:
    if role.runtime is not None:
        machine.path(role.runtime / "hub-hold").unlink(missing_ok=True)  # nobody would lift it


def _runs(role: ServiceRole) -> bool:
    return subprocess.run(["systemctl", "is-active", "--quiet", role.unit]).returncode == 0


def _delete(path: Path) -> str:
    """Delete a file, or a folder with all in it; return what was done. A folder on which a disk is
    mounted cannot go itself."""
    if not path.is_dir():
        path.unlink()
    elif path.is_mount():
        for entry in path.iterdir():
            _delete(entry)
        return f"emptied {path}, on which a disk is mounted"
    else:
        shutil.rmtree(path)
    return f"removed {path}"


def _remove_grants(machine: Machine, role: ServiceRole) -> None:
    """Remove our drop-ins; the administrator's own stay."""
    folder = machine.path(role.drop_ins)
    for name in role.grants:
        (folder / f"{name}.conf").unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _has_user(machine: Machine, role: ServiceRole) -> bool:
    users = machine.path("/etc/passwd")
    return users.exists() and any(line.startswith(f"{role.user}:")
                                  for line in users.read_text().splitlines())
