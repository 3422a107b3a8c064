"""Other programs that split boards on this machine: two that do it undo each other's work."""

from pathlib import Path

from ..tasks.processes import PROC

# By the name that the kernel has, of 15 characters.
PROGRAMS = {"nvidia-mig-mana": "the MIG manager of NVIDIA's GPU operator",
            "mig-manager": "the MIG manager of NVIDIA's GPU operator",
            "gpu-kubelet-plu": "NVIDIA's DRA driver for Kubernetes"}
UNIT = "nvidia-mig-manager.service"
WANTED_BY = Path("/etc/systemd/system/multi-user.target.wants")


def other_manager(proc: Path = PROC, wanted_by: Path = WANTED_BY) -> str:
    """Return why gpudeck does not split boards here; "": no other manager was seen."""
    if (wanted_by / UNIT).is_symlink():
        return f"{UNIT} of mig-parted is enabled here and sets the layout; use that, or disable it"
    for folder in (entry for entry in proc.iterdir() if entry.name.isdigit()):
        try:
            name = (folder / "comm").read_text(errors="replace").strip()
        except OSError:
            continue  # it has just ended
        if name in PROGRAMS:
            return f"{PROGRAMS[name]} runs here ({folder.name}) and sets the layout; use that"
    return ""
