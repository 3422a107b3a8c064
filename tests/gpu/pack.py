"""Wheels that a bare machine with a card needs to run these tests, in one folder: for machines that
reach no registry. Here, leaving out what the machine has (the wheels weigh 62 MiB in all):

    python -m tests.gpu.pack FOLDER [PYTHON [WITHOUT ...]]

and there, in the checkout:

    python3 -m pip install --no-index --no-deps --target /tmp/site FOLDER/*.whl
    PYTHONPATH=/tmp/site GPUDECK_CAPTURES=SOMEWHERE python3 -m pytest tests/gpu -n 0
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Beside what gpudeck itself needs: a runner, and what the tests' hub and fakes import.
MORE = ("pytest>=8.3", "pytest-xdist>=3.6", "psutil>=6", "simple-websocket",
        "websocket-client>=1.8")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64",
             "manylinux2014_x86_64", "manylinux1_x86_64")


def main(argv: list[str]) -> int:
    folder, python = Path(argv[0]), argv[1] if len(argv) > 1 else "3.12"
    folder.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["hub"], *MORE]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
         "--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms,
         "--dest", str(folder), *requirements], check=True)
    for path in folder.glob("*.whl"):
        if path.name.partition("-")[0].lower() in argv[2:]:
            path.unlink()
    sizes = [path.stat().st_size for path in folder.glob("*.whl")]
    print(f"{len(sizes)} wheels, {sum(sizes) / 2**20:.0f} MiB in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
