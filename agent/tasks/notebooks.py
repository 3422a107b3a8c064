"""Which notebook a process is the kernel of. Pure."""

import re
from collections.abc import Mapping, Sequence

# Set by Jupyter Server since 2.0: the file, as the server sees it.
NAMES = ("JPY_SESSION_NAME",)
# `python -m ipykernel_launcher -f .../kernel-UUID.json`; VS Code writes --f=.../kernel-v2-….json.
KERNEL_FILE = re.compile(r"(?:^|/|=)kernel-([\w.-]{1,64}?)\.json$")
KERNELS = ("ipykernel", "colab_kernel", "xpython", "xeus", "IRkernel", "bash_kernel", "julia",
           "evcxr", "almond")


def notebook_of(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Its file, or the kernel's id where that is not known; None: it is no kernel. A child of a
    kernel has the kernel's environment, and is none itself."""
    kernel = _kernel(words)
    if kernel is None:
        return None
    return env.get("JPY_SESSION_NAME", "").strip() or f"kernel {kernel}"


def _kernel(words: Sequence[str]) -> str | None:
    if not any(name in word for word in words[:6] for name in KERNELS):
        return None
    found = (KERNEL_FILE.search(word) for word in words[1:])
    return next((match[1] for match in found if match), None)
