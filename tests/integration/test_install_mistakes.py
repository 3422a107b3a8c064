"""Mistakes and misfortunes of an installation, in a machine that runs systemd: each says in words
what to do, where the operator looks, and what they then do works."""

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.errors import ExitCode
from tests.booted import BootedMachine, a_booted_machine
from tests.fakes.clock import build
from tests.fakes.hub import wait_for
from tests.integration.test_service_used import AS_HUB, HUB_DATA
from tests.ports import free_port

AGENT = "gpudeck service install agent"
PURGE = "gpudeck service uninstall agent --purge"
CONFIG = "/etc/gpudeck/agent.toml"


class Installation:
    """A hub, and what an operator types on a node, which is the same machine."""

    def __init__(self, machine: BootedMachine) -> None:
        self.machine, self.port = machine, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._secret = ""
        self.install_hub()

    def install_hub(self) -> None:
        self.machine.run(f"gpudeck service install hub --bind 127.0.0.1:{self.port}")
        self._secret = json.loads(self.machine.run(
            f"{AS_HUB} token create api test --json {HUB_DATA}"))["token"]

    def token(self, *words: str) -> str:
        return str(json.loads(self.machine.run(
            f"{AS_HUB} token create agent --json {HUB_DATA} {' '.join(words)}"))["token"])

    def install(self, token: str, words: str = "") -> str:
        """Install the agent, which starts; return all that is printed."""
        return self.machine.run(f"echo {token} | {AGENT} --token-file - {words} 2>&1")

    def refusal(self, token: str, words: str = "") -> str:
        attempt = self.machine.try_to(f"echo '{token}' | {AGENT} --token-file - {words}")
        assert attempt.returncode == ExitCode.USAGE, attempt.stdout + attempt.stderr
        return attempt.stderr

    def journal(self, unit: str = "gpudeck-agent") -> str:
        return self.machine.run(f"journalctl --no-pager -u {unit} -o cat")

    def status(self) -> str:
        return self.machine.run("systemctl status gpudeck-agent || true")

    def clock_offset_s(self) -> float:
        """Return what the hub shows to Prometheus; 0: nothing yet."""
        request = urllib.request.Request(f"{self.url}/metrics", headers={
            "Authorization": f"Bearer {self._secret}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
        value = re.search(r"^gpudeck_agent_clock_offset_seconds{.*} (\S+)$", text, re.M)
        return 0.0 if value is None else abs(float(value[1]))

    def is_live(self) -> bool:
        attempt = self.machine.try_to(
            f"export GPUDECK_TOKEN={self._secret}; gpudeck status --json --hub {self.url}")
        return attempt.returncode == 0 and "live" in {
            node["state"] for node in json.loads(attempt.stdout)["nodes"]}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with a_booted_machine(tmp_path_factory.mktemp("booted")) as machine:
        yield Installation(machine)


@pytest.fixture(autouse=True)
def _as_new(installed: Installation) -> Iterator[None]:
    yield
    installed.machine.run(PURGE)


def test_what_is_no_token_is_refused_before_anything_is_written(installed: Installation) -> None:
    token, hub = installed.token(), f"--hub {installed.url}"
    assert "this is not an enrolment token (gdk1.…)" in installed.refusal("hunter2", hub)
    assert "cut off or mistyped; copy the whole line" in installed.refusal(token[:-5], hub)
    assert "a URL is needed, for example" in installed.refusal(token, "--hub deck.example.org")
    assert installed.machine.try_to(f"ls {CONFIG}").returncode != 0
    assert f"connected to {installed.url}" in installed.install(token, hub)
    assert installed.is_live()


def test_a_token_that_the_hub_refuses_says_why_and_another_one_is_taken(
    installed: Installation
) -> None:
    hub = f"--hub {installed.url}"
    output = installed.install(installed.token("--host", "gpu99"), hub)
    assert "the enrolment token is for the host 'gpu99', and this one is called" in output
    assert "make one for it, or use --host" in installed.status()
    token = installed.token()
    assert f"connected to {installed.url}" in installed.install(token, hub), "typed again"
    installed.machine.run(PURGE)
    assert "has been used already, as often as it may be; make a new one" in installed.install(
        token, hub)
    assert f"connected to {installed.url}" in installed.install(installed.token())


@pytest.mark.parametrize(("user", "words", "says"), [
    ("root", "", "there is no hub state in /root/"),
    ("root", HUB_DATA, "belongs to gpudeck-hub; run this as that user (as root: runuser -u gpud"),
    ("nobody", HUB_DATA, "is closed to this user; the hub of this machine is a service")])
def test_whoever_asks_for_a_token_as_somebody_else_is_told_how(
    installed: Installation, user: str, words: str, says: str
) -> None:
    attempt = installed.machine.try_to(
        f"runuser -u {user} -- gpudeck token create agent {words}")
    assert attempt.returncode == ExitCode.CANNOT_START
    assert says in attempt.stderr
    assert "runuser -u gpudeck-hub -- gpudeck" in attempt.stderr


def test_without_a_token_it_does_not_start_and_says_how_to_get_one(installed: Installation
                                                                   ) -> None:
    attempt = installed.machine.try_to(f"{AGENT} --hub {installed.url}")
    assert attempt.returncode == ExitCode.CANNOT_START
    assert "run `gpudeck token create agent` where the hub is" in attempt.stderr
    assert f"connected to {installed.url}" in installed.install(installed.token())


@pytest.mark.parametrize(("hub", "says"), [
    ("https://deck.invalid", "the name in the hub's URL is not known here ("),
    ("http://127.0.0.1:1", "connection refused: does the hub run there, or the proxy before it"),
    ("https://127.0.0.1:PORT", "is the hub's URL right, https and port?")])
def test_a_hub_that_is_not_there(installed: Installation, hub: str, says: str) -> None:
    machine, hub = installed.machine, hub.replace("PORT", str(installed.port))
    assert says in installed.install(installed.token(), f"--hub {hub}")
    assert f"no_connection hub={hub}" in installed.journal()
    # As the page on troubleshooting says.
    machine.run(f"sed -i 's|^hub = .*|hub = \"{installed.url}\"|' {CONFIG}; "
                "systemctl restart gpudeck-agent")
    wait_for(installed.is_live)


@pytest.mark.parametrize("grant", ["none", "act,owners"])
def test_joining_again_grants_neither_more_nor_less(installed: Installation, grant: str) -> None:
    """An agent that only monitors does not get to end tasks by it, and one that reads the job
    numbers of a scheduler goes on to."""
    machine = installed.machine
    installed.install(installed.token(), f"--hub {installed.url} --grant {grant}")
    capabilities = "systemctl show --value -p CapabilityBoundingSet gpudeck-agent"
    before = machine.run(capabilities)
    machine.run(f"echo {installed.token()} | gpudeck join {installed.url}")
    assert machine.run(capabilities) == before
    wait_for(installed.is_live)


def test_a_root_with_a_closed_umask(installed: Installation) -> None:
    """Open to services what is made under umask 077, or say what to open."""
    machine, program = installed.machine, "/opt/closed/env/bin/gpudeck"
    machine.run("rm -f /etc/gpudeck/agent.toml; mv /etc/gpudeck /etc/gpudeck.before")
    token, hub = installed.token(), f"--hub {installed.url}"
    try:
        output = machine.run(f"umask 077; echo {token} | {AGENT} --token-file - {hub} 2>&1")
        assert f"connected to {installed.url}" in output
        machine.run("chmod 700 /etc/gpudeck")
        refusal = installed.refusal(token)
        assert "cannot read /etc/gpudeck/agent.toml" in refusal
        assert "chmod a+x /etc/gpudeck; then install again" in refusal
        machine.run("chmod a+x /etc/gpudeck; umask 077; mkdir -p /opt/closed/env/bin; "
                    f"printf '#!/bin/sh\n' > {program}; chmod u+x {program}")
        refusal = installed.refusal(token, f"--program {program}")
        assert f"as which the service runs, cannot run {program}" in refusal
        assert "chmod a+x /opt/closed; then install again" in refusal
        machine.run("chmod a+x /opt/closed")
        assert "chmod -R a+rX /opt/closed/env; then install" in installed.refusal(
            token, f"--program {program}")
        machine.run("chmod -R a+rX /opt/closed; ln -sf /root/python /opt/closed/env/bin/python")
        assert "/root/python is in a folder that services cannot see" in installed.refusal(
            token, f"--program {program}")
    finally:
        machine.run("rm -rf /opt/closed /etc/gpudeck; mv /etc/gpudeck.before /etc/gpudeck")


def test_a_hub_whose_port_is_taken(installed: Installation) -> None:
    machine = installed.machine
    machine.run("systemctl stop gpudeck-hub")
    machine.start("python3", "-m", "http.server", "--bind", "127.0.0.1", str(installed.port))
    wait_for(lambda: machine.try_to(f"ss -ltn | grep :{installed.port}").stdout)
    try:
        attempt = machine.try_to("gpudeck service install hub")
        assert attempt.returncode == ExitCode.CANNOT_START
        for words in (f"cannot listen on 127.0.0.1:{installed.port}", "choose another with --bind",
                      "Mend /etc/gpudeck/hub.toml, then: systemctl restart gpudeck-hub"):
            assert words in attempt.stderr
    finally:
        machine.run("kill $(pgrep -f '[h]ttp.server --bind')")
    # It comes by itself as soon as the port is free.
    wait_for(lambda: machine.try_to("systemctl is-active gpudeck-hub").stdout == "active\n")


def test_a_hub_that_restarts_while_nodes_come(installed: Installation) -> None:
    """A token that was not used up by then is used up once, and the node is there once."""
    machine, token = installed.machine, installed.token()
    machine.run("systemctl kill --signal STOP gpudeck-hub")
    machine.start("sh", "-c", f"echo {token} | {AGENT} --hub {installed.url} --token-file - "
                  "> /root/output 2>&1")
    wait_for(lambda: machine.try_to("systemctl is-active gpudeck-agent").stdout == "active\n")
    time.sleep(4)  # the connection is asked for after the first reading
    machine.run("systemctl kill --signal KILL gpudeck-hub; systemctl restart gpudeck-hub")
    wait_for(installed.is_live)
    installed.machine.run("systemctl restart gpudeck-hub")
    wait_for(installed.is_live)


def test_a_disk_without_room(installed: Installation) -> None:
    """The agent can write neither its key nor what it must remember."""
    machine, folder = installed.machine, "/var/lib/gpudeck-agent"
    machine.run(f"{AGENT} --hub {installed.url} --no-start; "
                f"mkdir -p {folder}; mount -t tmpfs -o size=64k,mode=700 tmpfs {folder}; "
                f"chown gpudeck-agent: {folder}")
    try:
        machine.try_to(f"head -c 70000 /dev/zero > {folder}/full")
        attempt = machine.try_to(f"echo {installed.token()} | {AGENT} --token-file -")
        assert attempt.returncode != 0
        assert "No space left on device" in attempt.stderr
        assert "free some space" in attempt.stderr
        machine.run(f"rm {folder}/full; mount -o remount,size=64m {folder}")
        assert f"connected to {installed.url}" in installed.install(installed.token())
        assert f"emptied {folder}, on which a disk is mounted" in machine.run(PURGE)
        assert machine.run(f"ls -A {folder}") == ""
    finally:
        machine.run(f"systemctl stop gpudeck-agent || true; umount {folder}")


def test_a_hub_without_room(installed: Installation) -> None:
    machine, folder = installed.machine, "/var/lib/gpudeck-hub"
    machine.run(f"systemctl stop gpudeck-hub; mount -t tmpfs -o size=64k,mode=700 tmpfs {folder}; "
                f"chown gpudeck-hub: {folder}")
    try:
        machine.try_to(f"head -c 70000 /dev/zero > {folder}/full")
        attempt = machine.try_to("gpudeck service install hub")
        assert attempt.returncode == ExitCode.CANNOT_START
        assert "the disk is full: free some space" in attempt.stderr
        machine.run(f"rm {folder}/full; mount -o remount,size=256m {folder}")
        # It is started again by systemd.
        wait_for(lambda: machine.try_to("systemctl is-active gpudeck-hub").stdout == "active\n")
    finally:
        machine.run(f"systemctl stop gpudeck-hub; umount {folder}; systemctl start gpudeck-hub")


def test_a_node_gets_another_hub(installed: Installation) -> None:
    """The hub was set up again, with another key."""
    machine = installed.machine
    installed.install(installed.token(), f"--hub {installed.url}")
    machine.run("gpudeck service uninstall hub --purge")
    installed.install_hub()
    wait_for(lambda: "if this is intended, stop this agent" in installed.status())
    attempt = machine.try_to(f"echo {installed.token()} | {AGENT} --token-file -")
    assert "this node belongs to the hub with the key" in attempt.stderr
    machine.run("systemctl stop gpudeck-agent; runuser -u gpudeck-agent -- gpudeck agent "
                "--forget-hub --data /var/lib/gpudeck-agent")
    assert f"connected to {installed.url}" in installed.install(installed.token())


def test_a_clock_that_is_an_hour_off(installed: Installation, tmp_path: Path) -> None:
    machine, fake = installed.machine, "/opt/clock"
    drop_ins = "/etc/systemd/system/gpudeck-agent.service.d"
    machine.run(f"mkdir -p {fake} {drop_ins}; echo 3600 > {fake}/offset; printf '[Service]\n"
                f"Environment=LD_PRELOAD={fake}/stepped.so FAKE_CLOCK={fake}/offset\n' "
                f"> {drop_ins}/clock.conf")
    shutil.copy(build(), machine.path(fake))
    try:
        assert f"connected to {installed.url}" in installed.install(
            installed.token(), f"--hub {installed.url}")
        doctor = machine.try_to(f"export LD_PRELOAD={fake}/stepped.so FAKE_CLOCK={fake}/offset; "
                                "gpudeck doctor --json").stdout
        [clock] = [check for check in json.loads(doctor)["checks"] if check["key"] == "clock"]
        assert clock["verdict"] == "problem", clock
        assert re.fullmatch(r"3[56]\d\d s ahead of the hub's", clock["says"])
        assert "run a time service on both" in clock["remedy"]
        wait_for(lambda: installed.clock_offset_s() > 3_500)
    finally:
        machine.run(f"rm -rf {drop_ins}")
