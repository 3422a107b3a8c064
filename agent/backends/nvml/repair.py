"""Reset by `nvidia-smi --gpu-reset`, since NVML has no such call, and diagnosis by `dcgmi diag`.

Unverified on hardware: built from the manuals of nvidia-smi and DCGM and from what others have
reported (github.com/NVIDIA/NVSentinel, 1690 and 1691; github.com/NVIDIA/gpu-operator, 118).
"""

import os
import shutil
import subprocess

from gpudeck.contract.wire import GpuFacts
from gpudeck.system.child_processes import without_tokens

from ...tasks.processes import PROC
from ..repair import DiagnosisAnswer, ResetAnswer
from .dcgm_diag import judge

SMI, DCGMI = "nvidia-smi", "dcgmi"
RESET_WITHIN_S = 120.0
# Longer levels would keep every other action on this node waiting.
DIAGNOSIS_WITHIN_S = {1: 120.0, 2: 600.0}
DONE = "successfully reset"


def reset_trouble(facts: GpuFacts) -> str:
    if facts.pci_bus_id is None or facts.minor is None:
        return "its PCI address or its device file is not known"
    return "" if shutil.which(SMI) else f"{SMI} is not installed here, and nothing else resets"


def diagnosis_trouble() -> str:
    return "" if shutil.which(DCGMI) else (
        f"{DCGMI} is not installed here; it comes with NVIDIA's datacenter-gpu-manager")


def holders(facts: GpuFacts) -> tuple[str, ...] | None:
    device, programs = f"/dev/nvidia{facts.minor}", []
    for folder in (process for process in PROC.iterdir() if process.name.isdigit()):
        try:
            if any(os.readlink(entry) == device for entry in [*(folder / "fd").iterdir()]):
                name = (folder / "comm").read_text(errors="replace").strip()
                programs.append(f"{name} ({folder.name})")
        except PermissionError:
            return None
        except OSError:
            continue  # it has just ended
    return tuple(programs)


def reset(facts: GpuFacts) -> ResetAnswer:
    code, output = _run([SMI, "--gpu-reset", "-i", str(facts.pci_bus_id)], RESET_WITHIN_S)
    if code is None:
        return ResetAnswer(output, False)  # nobody knows what it did until then
    return ResetAnswer(output or f"exit status {code}", code != 0 and DONE not in output)


def diagnose(facts: GpuFacts, level: int) -> DiagnosisAnswer:
    code, output = _run([DCGMI, "diag", "-r", str(level), "-i", str(facts.index), "-j"],
                        DIAGNOSIS_WITHIN_S[level])
    if code is None:
        return DiagnosisAnswer("not_judged", output)
    return judge(output, facts.index)


def _run(command: list[str], within_s: float) -> tuple[int | None, str]:
    """Run it; None: no exit status came."""
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                 timeout=within_s, check=False, env=without_tokens(os.environ))
    except subprocess.TimeoutExpired:
        return None, f"{command[0]} did not end within {within_s:.0f} s"
    except OSError as error:
        return 127, f"{command[0]} cannot be started ({error.strerror})"
    output = (process.stdout or process.stderr).decode(errors="replace").strip()
    return process.returncode, output
