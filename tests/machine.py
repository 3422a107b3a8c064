"""Programs that tests need on the machine, by name: .ci/machine installs them. At home a test whose
program is missing skips; where CI is set it fails, so that nothing is left out unnoticed."""

import os
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

# As in .ci/machine: a program, and the Debian package that brings it.
PACKAGES = {"chromium-headless-shell": "chromium-headless-shell", "gcc": "gcc",
            "promtool": "prometheus", "prometheus": "prometheus", "curl": "curl",
            "unshare": "util-linux", "nsenter": "util-linux",
            "fsfreeze": "util-linux", "mount": "mount", "mkfs.ext4": "e2fsprogs",
            "systemd-analyze": "systemd", "debootstrap": "debootstrap", "nginx": "nginx-light",
            "prometheus-alertmanager": "prometheus-alertmanager", "postgres": "postgresql",
            "node": "nodejs", "lintian": "lintian", "caddy": "caddy",
            "kubectl": "kubernetes-client", "buildah": "buildah", "munged": "munge",
            "slurmctld": "slurmctld", "slurmd": "slurmd", "squeue": "slurm-client",
            "victoria-metrics": "victoria-metrics", "apache2": "apache2-bin", "slapd": "slapd",
            "slapadd": "slapd"}

# Debian keeps them out of the way, the second by version.
ELSEWHERE = ":".join(("/usr/sbin", "/sbin",
                      *map(str, Path("/usr/lib/postgresql").glob("*/bin"))))


def required(program: str) -> str:
    path = shutil.which(program) or shutil.which(program, path=ELSEWHERE)
    if path is not None:
        return path
    missing = f"{program} is not here (Debian's package {PACKAGES[program]})"
    if os.environ.get("CI"):
        pytest.fail(f"{missing}; .ci/machine installs it")
    pytest.skip(missing)


def required_node_modules(folder: Path) -> None:
    """Skip or fail unless `npm ci` has installed the modules of this folder."""
    if (folder / "node_modules").is_dir():
        return
    missing = f"{folder.name}/node_modules is not here (npm ci)"
    if os.environ.get("CI"):
        pytest.fail(f"{missing}; .ci/machine installs it")
    pytest.skip(missing)


def required_module(name: str) -> ModuleType:
    """Import a module of the dependency group `engines`, which only `make engines` and `make soak`
    install; skip or fail without it."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        missing = f"{name} is not here (pip install --group engines)"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
