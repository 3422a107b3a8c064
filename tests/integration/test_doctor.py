"""`gpudeck doctor` on the C fake and a hub: each verdict has its cause, a hung driver does not
hang it, and what is sent to others holds no secret."""

import contextlib
import json
import os
import random
import re
import secrets
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from agent.backends.check import DoctorCheck, worst
from agent.backends.nvml.doctor import ask_driver, device_check, driver_checks
from agent.doctor.bundle import TextScrubber, write_bundle
from agent.doctor.hub import clock_check, hub_checks
from agent.doctor.node import (
    agent_check,
    capability_check,
    ceiling_check,
    data_check,
    frameworks_check,
    hardware_check,
    holds_check,
    mps_check,
)
from agent.link.identity import pinned_hub
from agent.runtime.data_lock import DataFolderLock
from gpudeck.contract.pool_messages import SOCKET_ENV
from gpudeck.errors import CommandError
from gpudeck.network.keys import fingerprint
from tests.fakes.certificates import Authority
from tests.fakes.hub import FakeHub
from tests.fakes.nvml import FakeNvml

ROOT = Path(__file__).parents[2]
CODE = "import sys; from agent.doctor.report import doctor; sys.exit(doctor(sys.argv[1:]))"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(tmp_path, gpus=2)
    for gpu in fake.gpus:
        gpu["persistence"] = 1
    fake.save()
    fake.use_in_children(monkeypatch)
    return fake


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder


def run_doctor(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", CODE, *arguments], cwd=ROOT, env=env, text=True,
                          capture_output=True, timeout=60, check=False)


def by_key(checks: Any) -> dict[str, DoctorCheck]:
    return {check.key: check for check in checks}


def test_a_machine_that_is_well(nvml: FakeNvml, hub: FakeHub, data: Path) -> None:
    pinned_hub(data, fingerprint(hub.key.public))
    process = run_doctor("--json", "--hub", hub.url, "--data", str(data), env=nvml.env())
    document = json.loads(process.stdout)
    checks = {check["key"]: check for check in document["checks"]}
    for key in ("gpudeck", "library", "driver", "gpus", "metrics", "persistence", "data", "hub",
                "clock", "hub_key", "ceiling", "holds", "pidfd"):
        assert checks[key]["verdict"] == "ok", checks[key]
    assert str(nvml.library) in checks["library"]["says"]
    assert "550.54.15, CUDA 12.4" in checks["driver"]["says"]
    assert "2 x NVIDIA H100" in checks["gpus"]["says"]
    assert "its epoch is 1" in checks["hub_key"]["says"]
    assert checks["agent"]["verdict"] == "warning"
    assert (document["verdict"], process.returncode) == ("warning", 0)
    assert set(document) == {"verdict", "checked_at", "checks"}
    assert {name for check in document["checks"] for name in check} == {
        "key", "title", "verdict", "says", "remedy"}
    assert hub.hellos == []  # no connection of the agent's is replaced


def test_every_check_is_documented(nvml: FakeNvml, hub: FakeHub, data: Path) -> None:
    process = run_doctor("--json", "--hub", hub.url, "--data", str(data), env=nvml.env())
    keys = {check["key"] for check in json.loads(process.stdout)["checks"]}
    page = (ROOT / "docs" / "doctor.md").read_text()
    assert {key for key in keys if f"| `{key}` |" not in page} == set()


def test_a_problem_is_exit_code_1_and_says_what_to_do(
    nvml: FakeNvml, hub: FakeHub, data: Path
) -> None:
    nvml.unload()
    process = run_doctor("--hub", hub.url, "--data", str(data), env=nvml.env())
    assert process.returncode == 1
    assert "PROBLEM  NVIDIA driver" in process.stdout
    assert "sudo modprobe nvidia" in process.stdout


def test_a_hung_driver_does_not_hang_it(nvml: FakeNvml) -> None:
    """Pitfall 21. The report still has what was known before: which library it is."""
    nvml.lines = ["hang nvmlDeviceGetTemperatureV"]
    nvml.save()
    began = time.monotonic()
    report = ask_driver(within_s=6.0)
    assert time.monotonic() - began < 9
    checks = by_key(driver_checks(report))
    assert (checks["driver"].verdict, checks["library"].verdict) == ("problem", "ok")
    assert "does not answer" in checks["driver"].says
    nvml.lines = []
    nvml.save()


@pytest.mark.parametrize(("lines", "key", "verdict", "words"), [
    (["error * nvmlInitWithFlags 18"], "driver", "problem", "different versions"),
    (["lost 1"], "gpus", "problem", "GPU 1 is lost"),
    (["error 0 nvmlDeviceGetUtilizationRates 16"], "gpus", "warning", "must be reset"),
    (["error * nvmlDeviceGetFanSpeed 4"], "metrics", "warning", "denied: fan_pct"),
    (["error * nvmlDeviceGetHandleByIndex_v2 3"], "gpus", "problem", "lists no GPU"),
])
def test_what_is_wrong_with_the_driver(
    nvml: FakeNvml, lines: list[str], key: str, verdict: str, words: str
) -> None:
    if "error * nvmlDeviceGetHandle" in lines[0]:
        nvml.gpus, lines = [], []
    for gpu in nvml.gpus:
        gpu["fan"] = 40
    nvml.lines = lines
    nvml.save()
    check = by_key(driver_checks(ask_driver()))[key]
    assert (check.verdict, words in check.says + check.remedy) == (verdict, True), check


def test_persistence_off(nvml: FakeNvml) -> None:
    """Pitfall 23: caps and clocks fall back."""
    nvml.gpus[1]["persistence"] = 0
    nvml.save()
    check = by_key(driver_checks(ask_driver()))["persistence"]
    assert (check.verdict, "GPU 1:" in check.says) == ("warning", True)


def test_device_files(nvml: FakeNvml, tmp_path: Path) -> None:
    assert device_check(ask_driver(), tmp_path).verdict == "not checked"


def test_another_hub_behind_the_name(hub: FakeHub, data: Path) -> None:
    pinned_hub(data, secrets.token_hex(16))
    checks = by_key(hub_checks(hub.url, None, data, {}))
    assert checks["hub_key"].verdict == "problem"
    assert "another hub, or an interception" in checks["hub_key"].says


def test_no_hub_there(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    env = {SOCKET_ENV: str(data / "pool.sock")}
    assert [check.verdict for check in hub_checks(url, None, data, env)] == ["warning"]
    with socket.socket(socket.AF_UNIX) as pool:  # of an agent alone
        pool.bind(env[SOCKET_ENV])
        pool.listen()
        [check] = hub_checks(url, None, data, env)
        assert (check.verdict, check.says) == (
            "not checked", "the agent of this machine leases its GPUs without one")
    pinned_hub(data, secrets.token_hex(16))
    assert [check.verdict for check in hub_checks(url, None, data, env)] == ["problem"]


def test_a_hub_whose_certificate_has_expired(data: Path, tmp_path: Path) -> None:
    """Give the cure of the agent's own log; firewalls are not asked for."""
    authority = Authority(tmp_path)
    pair = authority.issue("deck", -3, -1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listener, context.wrap_socket(
            listener, server_side=True) as server:
        def shake_hands() -> None:
            with contextlib.suppress(OSError):
                server.accept()

        thread = threading.Thread(target=shake_hands)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        [check] = hub_checks(url, authority.file, data, {})
        thread.join()
    assert "the hub's certificate is refused: certificate has expired" in check.says
    assert check.remedy.startswith("renew it on the hub; the agent buffers")


@pytest.mark.parametrize(("skew_s", "verdict"), [
    (None, "not checked"), (0.4, "ok"), (-2.0, "ok"), (7.0, "warning"), (-90.0, "problem"),
])
def test_clock(skew_s: float | None, verdict: str) -> None:
    assert clock_check(skew_s).verdict == verdict


def test_privileges(tmp_path: Path) -> None:
    status = tmp_path / "self" / "status"
    assert capability_check(tmp_path).verdict == "not checked"
    status.parent.mkdir()
    for mask, verdict, words in ((1 << 5 | 1 << 21, "ok", ""), (1 << 5, "warning", "SYS_ADMIN"),
                                 (0, "warning", "CAP_KILL")):
        status.write_text(f"Name:\tx\nCapEff:\t{mask:016x}\n")
        check = capability_check(tmp_path)
        assert (check.verdict, words in check.says) == (verdict, True)


def test_mps(tmp_path: Path) -> None:
    control = tmp_path / "nvidia-cuda-mps-control"
    assert mps_check(str(control)).verdict == "not checked"
    for script, verdict, words in (("echo 4711", "ok", "servers: 1"),
                                   ("exit 1", "ok", "no control daemon")):
        control.write_text(f"#!/bin/sh\n{script}\n")
        control.chmod(0o755)
        check = mps_check(str(control))
        assert (check.verdict, words in check.says) == (verdict, True)


def test_data_folder(data: Path, tmp_path: Path) -> None:
    assert data_check(data).verdict == "ok"
    data.chmod(0o755)
    assert data_check(data).verdict == "warning"
    assert data_check(tmp_path / "new").verdict == "ok"
    (tmp_path / "file").write_text("")


def test_ceiling_and_holds(data: Path, tmp_path: Path) -> None:
    ceiling = tmp_path / "ceiling.toml"
    assert ceiling_check(ceiling).verdict == "problem"
    ceiling.write_text("kills_per_hour = 7\n")
    ceiling.chmod(0o600)
    assert "at most 7 ends" in ceiling_check(ceiling).says
    assert hardware_check(ceiling).verdict == "ok"
    ceiling.write_text('actions = ["end", "reset_gpu"]\n')
    row = hardware_check(ceiling)
    assert (row.verdict, "reset_gpu" in row.says, "end," in row.says) == ("warning", True, False)
    ceiling.chmod(0o666)
    assert "others can write" in ceiling_check(ceiling).says
    assert holds_check(data).verdict == "ok"
    (data / "hold").write_text("maintenance\n")
    assert "maintenance" in holds_check(data).says


def test_the_agent_that_runs_is_found_without_touching_its_lock(data: Path) -> None:
    assert agent_check(data).verdict == "warning"
    with DataFolderLock(data):
        assert str(os.getpid()) in agent_check(data).says
    assert agent_check(data).verdict == "warning"


def test_the_agent_of_up_is_one_too(data: Path, monkeypatch: pytest.MonkeyPatch,
                                    tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert agent_check(data).verdict == "warning"
    with DataFolderLock(tmp_path / "state/gpudeck/up/agent"):
        check = agent_check(data)
    assert (check.verdict, check.says) == (
        "ok", f"runs as process {os.getpid()}, that of `gpudeck up`")


def test_two_packages_that_own_one_file() -> None:
    there = {"pynvml": "11.5.3", "nvidia-ml-py": "12.560.30"}

    def version_of(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    assert frameworks_check(version_of).verdict == "warning"
    del there["pynvml"]
    assert frameworks_check(version_of).verdict == "ok"


def test_the_worst_counts() -> None:
    def checks(*verdicts: Any) -> list[DoctorCheck]:
        return [DoctorCheck(str(at), "", verdict, "") for at, verdict in enumerate(verdicts)]

    assert worst(checks("ok", "problem", "warning")) == "problem"
    assert worst(checks("ok", "not checked")) == "ok"


def test_nothing_secret_is_in_the_bundle(
    nvml: FakeNvml, hub: FakeHub, data: Path, tmp_path: Path
) -> None:
    """Planted in the environment, in a secret's file, in a command line and in the log."""
    planted = {kind: f"{kind}{secrets.token_hex(8)}" for kind in (
        "envtoken", "odd", "filed", "logged", "password")}
    file = tmp_path / "pw"
    file.write_text(planted["filed"] + "\n")
    log = tmp_path / "bin"
    log.mkdir()
    lines = [
        f"gpudeck[1]: started --token {planted['logged']} hub=https://bob:{planted['password']}@h",
        f"task command='train.py --api-key={planted['envtoken']}' odd={planted['odd']}",
        f"gpu {nvml.gpus[0].uuid} lost; read {planted['filed']}; at 10.1.2.{random.randint(1, 9)}",
        f"host {socket.gethostname()} alice.smith@example.org",
    ]
    (log / "journalctl").write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    (log / "journalctl").chmod(0o755)
    env = {**nvml.env(), "GPUDECK_TOKEN": planted["envtoken"], "CUDA_SECRET_ODD": planted["odd"],
           "GPUDECK_SMTP_PASSWORD_FILE": str(file), "PATH": f"{log}:{os.environ['PATH']}"}
    bundle = tmp_path / "report.zip"
    arguments = ("--hub", hub.url, "--data", str(data), "--bundle", str(bundle))
    process = run_doctor(*arguments, env=env)
    assert process.returncode in (0, 1), process.stderr
    with zipfile.ZipFile(bundle) as opened:
        texts = {name: opened.read(name).decode() for name in opened.namelist()}
    assert {"doctor.json", "environment.txt", "system.txt", "agent.log"} <= set(texts)
    whole = "\n".join(texts.values())
    for kind, secret in planted.items():
        assert secret not in whole, kind
    for name in (nvml.gpus[0].uuid, rf"(?<![\w-]){re.escape(socket.gethostname())}(?![\w-])",
                 "alice.smith", r"10\.1\.2\."):
        assert not re.search(name, whole), name
    assert "gpudeck[1]: started" in texts["agent.log"]  # it is the log, and not only hidden words
    assert json.loads(texts["doctor.json"])["checks"]
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    with pytest.raises(CommandError, match="is there already"):
        write_bundle(bundle, {}, TextScrubber({}, []))


@pytest.mark.parametrize("address", [
    "10.1.2.3", "2001:db8::7", "fe80::1ff:fe23:4567:890a", "2001:db8:0:0:0:0:0:7",
    "::ffff:10.1.2.3", "aa:bb:cc:dd:ee:0f",
    "80:00:02:08:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:79:a2:b4"])
def test_addresses_of_each_kind_are_hidden(address: str) -> None:
    scrub = TextScrubber({}, [])
    for text in (f"from {address}, twice", f"hub=https://[{address}]:8443", f"<{address}>"):
        assert not {word for word in re.split(r"[:.]", address) if len(word) > 1} & set(
            re.split(r"[^0-9a-z]", scrub(text))), scrub(text)


def test_what_is_no_address_stays() -> None:
    text = "12:34:56 up; 2026-11-30T12:34:56+0000 GPU 0000:3b:00.0 at [::1]:8050, :: and 127.0.0.1"
    assert TextScrubber({}, [])(text) == text


def test_the_hubs_own_name_is_hidden(
    nvml: FakeNvml, data: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "report.zip"
    run_doctor("--hub", "https://deck.invalid", "--data", str(data), "--bundle", str(bundle),
               env=nvml.env())
    with zipfile.ZipFile(bundle) as opened:
        whole = "\n".join(opened.read(name).decode() for name in opened.namelist())
    assert "no hub answers at https://[name " in whole
    assert "deck.invalid" not in whole


def test_one_name_is_one_word_everywhere() -> None:
    scrub = TextScrubber({}, ["node7"])
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    text = scrub(f"{uuid} on node7, node70 and node7: {uuid}")
    first, last = text.split()[0], text.split()[-1]
    assert first == last
    assert first != TextScrubber({}, [])(uuid), "nobody tries all addresses for a word"
    assert "node7," not in text
    assert "node70" in text
