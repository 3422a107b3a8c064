"""What tests need of the machine, by name: .ci/machine installs it. At home a test whose tool is
missing skips; where CI is set it fails, so that nothing is left out unseen."""

import os
import shutil

import pytest

# As in .ci/machine: a program, and the Debian package that brings it.
PACKAGES = {"chromium": "chromium", "gcc": "gcc", "promtool": "prometheus",
            "prometheus": "prometheus", "curl": "curl", "unshare": "util-linux",
            "fsfreeze": "util-linux", "mount": "mount", "mkfs.ext4": "e2fsprogs",
            "systemd-analyze": "systemd", "debootstrap": "debootstrap",
            "prometheus-alertmanager": "prometheus-alertmanager"}


def required(program: str) -> str:
    found = shutil.which(program)
    if found is not None:
        return found
    missing = f"{program} is not here (Debian's package {PACKAGES[program]})"
    if os.environ.get("CI"):
        pytest.fail(f"{missing}; .ci/machine installs it")
    pytest.skip(missing)
