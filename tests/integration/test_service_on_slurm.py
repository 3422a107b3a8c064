"""A job of Debian's own Slurm on a node whose agent is the service that gpudeck installs: through
the hub it is refused in words, whether Slurm makes cgroups or not, and whatever is granted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpudeck.errors import ExitCode
from tests.booted import BootedMachine, a_booted_machine
from tests.fakes.hub import wait_for
from tests.integration.test_service_used import FAKE, Site, made_site
from tests.machine import required

CONF = "/run/tests-slurm"
GRANTS = {"default": "", "owners": "--grant act,terminals,owners"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    required("slurmctld")
    with a_booted_machine(tmp_path_factory.mktemp("booted")) as machine:
        yield made_site(machine, tmp_path_factory.mktemp("fake"))


@contextmanager
def slurm(machine: BootedMachine, tracks_by: str) -> Iterator[Callable[[str], str]]:
    """Run Slurm in that machine; yield a function that runs its commands."""
    freezer = "/sys/fs/cgroup/freezer"
    machine.run(f"rm -f {CONF}; mkdir -p {freezer}; mountpoint -q {freezer} "
                f"|| mount -t cgroup -o freezer cgroup {freezer}")
    machine.start("sh", "-c", "cd /opt/checkout; exec python -m tests.slurm_cluster "
                  f"{tracks_by} {CONF}")
    wait_for(lambda: machine.try_to(f"cat {CONF}").stdout)
    try:
        yield lambda words: machine.run(f"export SLURM_CONF=$(cat {CONF}); cd /tmp; {words}")
    finally:
        machine.run("kill $(pgrep -f '[p]ython -m tests.slurm_cluster')")
        wait_for(lambda: machine.try_to("pgrep -x slurmctld").returncode)


@pytest.mark.parametrize("tracks_by", ["linuxproc", "cgroup"])
@pytest.mark.parametrize("grant", GRANTS)
def test_a_job_is_refused_in_words(site: Site, tracks_by: str, grant: str) -> None:
    machine = site.machine
    with slurm(machine, tracks_by) as run:
        job = run("setpriv --reuid nobody --regid nogroup --clear-groups sbatch --parsable "
                  "--mem=100 -o /dev/null --gres=gpu:1 --wrap='exec sleep 600'").strip()

        def state() -> str:
            return run(f"scontrol show job {job} | grep -o 'JobState=[A-Z]*'").strip()

        wait_for(lambda: state() == "JobState=RUNNING")
        pid = int(wait_for(lambda: machine.try_to("pgrep -u nobody -x sleep").stdout.strip()))
        assert ("/slurm" in machine.run(f"cat /proc/{pid}/cgroup")) == (tracks_by == "cgroup")
        ticks = machine.run(f"cut -d ' ' -f 22 /proc/{pid}/stat").strip()
        machine.run(f"echo 'process 0 compute {pid} {2**30} started={ticks}' >> {FAKE}/nvml.txt; "
                    f"gpudeck service install agent {GRANTS[grant]}")
        with_job = Site(machine, site.url, site.secret, pid)
        for verb in ("pause", "end"):
            attempt = machine.try_to(
                f"export GPUDECK_TOKEN={site.secret}; rm -f /tmp/plan; "
                f"gpudeck {verb} {with_job.task()} --plan-out /tmp/plan --hub {site.url}")
            output = attempt.stdout + attempt.stderr
            assert attempt.returncode == ExitCode.REFUSED, output
            assert f"it belongs to slurm job {job}" in output, (
                output, state(), machine.try_to(f"cat /proc/{pid}/stat {FAKE}/nvml.txt"))
            assert f"use `scancel {job}`" in output, output
        assert machine.run(f"ps -o stat= -p {pid}").startswith("S")
        assert state() == "JobState=RUNNING"
        machine.run(f"sed -i '/compute {pid} /d' {FAKE}/nvml.txt")
        run(f"scancel {job}")
        # Beside it alice's own task is acted on as ever.
        assert "told alice" in site.notify("the job is over")
