"""Services of systemd: its own tools check and score the units; a root folder stands in for a
machine, and nothing of it is left behind."""

import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from agent.actions.standalone import StandaloneNode
from agent.settings import read
from agent.tasks.jobs import below
from agent.tasks.processes import table
from gpudeck.contract.action_table import TaskAction
from gpudeck.errors import CommandError
from gpudeck.service.command import service
from gpudeck.service.install import Machine
from gpudeck.service.remove import undo
from gpudeck.service.units import (
    AGENT,
    GRANT,
    HUB,
    PACKAGED,
    ServiceRole,
    files,
    sysusers_text,
    unit_text,
)
from tests.fakes.children import TREE, Child, Children, a_ceiling, state_of, wait_until_old
from tests.fakes.hub import wait_for
from tests.integration.test_actions_crash import write_world
from tests.machine import required

PROGRAM = "/opt/gpudeck/bin/gpudeck"
BEFORE = {"etc/systemd/system", "etc/sysusers.d", "opt/gpudeck/bin", "var/lib"}
# What the tools for users write beside what we ask of them.
OF_USERS = {"etc/.pwd.lock", *(f"etc/{name}{end}" for end in ("", "-")
                               for name in ("group", "gshadow", "passwd", "shadow"))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("services are installed by root")
    required("systemd-analyze")
    for folder in BEFORE:
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy("/bin/true", tmp_path / PROGRAM.lstrip("/"))
    return tmp_path


def there(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")} - OF_USERS


def analyzed(root: Path, *words: str) -> None:
    run = subprocess.run(["systemd-analyze", "--no-pager", *words], capture_output=True,
                         text=True)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout


@pytest.mark.parametrize(("role", "grants", "most"), [
    (HUB, (), 14), (AGENT, (), 18), (AGENT, AGENT.default_grants, 20),
    *((AGENT, (*AGENT.default_grants, more), 25) for more in ("owners", "limits", "births")),
    (AGENT, tuple(GRANT), 29)])
def test_systemd_accepts_and_scores_the_unit(
    root: Path, role: ServiceRole, grants: tuple[str, ...], most: int
) -> None:
    for path, text in files(role, PROGRAM, grants):
        (root / str(path).lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / str(path).lstrip("/")).write_text(text.replace(PROGRAM, "/bin/true"))
    unit = str(root / str(role.unit_file).lstrip("/"))
    analyzed(root, "verify", unit)
    analyzed(root, "security", "--offline=yes", f"--root={root}", f"--threshold={most}",
             f"{role.unit}.service")
    # The control: the tool would say so.
    Path(unit).write_text("[Service]\nExecStart=/bin/true\nUser=x\n")
    with pytest.raises(AssertionError):
        analyzed(root, "security", "--offline=yes", f"--root={root}", f"--threshold={most}",
                 f"{role.unit}.service")


def test_it_is_installed_changed_and_gone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = there(root)
    at = ["--root", str(root), "--program", PROGRAM]
    assert service(["install", "agent", "--hub", "https://hub:8050", "--pool", *at]) == 0
    assert "not granted: limits of GPUs cannot be set" in capsys.readouterr().out
    config = root / "etc/gpudeck/agent.toml"
    assert 'hub = "https://hub:8050"' in config.read_text()
    assert "gpudeck-agent:" in (root / "etc/passwd").read_text()
    drop_ins = root / "etc/systemd/system/gpudeck-agent.service.d"
    assert {path.name for path in drop_ins.iterdir()} == {"act.conf", "terminals.conf"}
    assert (root / "etc/systemd/system/multi-user.target.wants/gpudeck-agent.service").is_symlink()
    # Again, with other grants: settings and drop-ins of the administrator stay.
    config.write_text(config.read_text() + 'metrics = "127.0.0.1:9400"\n')
    (drop_ins / "mine.conf").write_text("[Service]\nNice=5\n")
    assert service(["install", "agent", "--grant", "owners", *at]) == 0
    assert "9400" in config.read_text()
    assert {path.name for path in drop_ins.iterdir()} == {"owners.conf", "mine.conf"}
    with pytest.raises(CommandError, match="has hub = 'https://hub:8050' and stays as it is"):
        service(["install", "agent", "--hub", "https://other:8050", *at])
    (root / "var/lib/gpudeck-agent").mkdir()
    assert service(["uninstall", "agent", "--root", str(root)]) == 0
    assert "--purge deletes it" in capsys.readouterr().out
    assert config.exists()
    (drop_ins / "mine.conf").unlink()
    drop_ins.rmdir()
    assert service(["uninstall", "agent", "--root", str(root), "--purge"]) == 0
    assert there(root) - {"etc/systemd/system/multi-user.target.wants"} == before
    assert "gpudeck-agent" not in (root / "etc/passwd").read_text()


def test_what_gpudeck_paused_goes_on_before_its_journal_goes(
        root: Path, children: Children, capsys: pytest.CaptureFixture[str]) -> None:
    """Afterwards nothing would resume it. A process that somebody else stopped stays so."""
    paused, resumed, bystander = children.start(TREE), children.start(), children.start()
    write_world(root, [paused, resumed, bystander])
    data = root / "var/lib/gpudeck-agent"
    data.mkdir()
    with StandaloneNode(data, "simulated", f"node=n1,gpus=1,world={root}", a_ceiling(root)) as here:
        wait_until_old(bystander)
        orders: list[tuple[TaskAction, Child]] = [
            ("pause", paused), ("pause", resumed), ("resume", resumed)]
        for action, child in orders:
            assert here.act(here.preview(action, child.task_id), "", "ada").state == "done"
    for child in (resumed, bystander):
        os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: {state_of(child.pid) for child in (paused, resumed, bystander)} == {"T"})
    assert service(["uninstall", "agent", "--root", str(root), "--purge"]) == 0
    report = capsys.readouterr().out
    assert f"resumed the task {paused.task_id}, which gpudeck had paused: 4 processes" in report
    assert not data.exists()
    assert {row.state for row in below([paused.pid], table())} <= {"S", "R"}
    assert (state_of(resumed.pid), state_of(bystander.pid)) == ("T", "T")
    assert "resumed" not in report.replace(f"resumed the task {paused.task_id}", "")


def test_what_is_left_in_force_is_undone_and_nothing_removed(
        root: Path, children: Children, capsys: pytest.CaptureFixture[str]) -> None:
    """Undo as the Debian package does before its program goes."""
    child = children.start()
    write_world(root, [child])
    data, hold = root / "var/lib/gpudeck-agent", root / "run/gpudeck/hub-hold"
    for folder in (data, hold.parent):
        folder.mkdir(parents=True)
    hold.touch()
    with StandaloneNode(data, "simulated", f"node=n1,gpus=1,world={root}", a_ceiling(root)) as here:
        wait_until_old(child)
        assert here.act(here.preview("pause", child.task_id), "", "ada").state == "done"
    wait_for(lambda: state_of(child.pid) == "T")
    assert service(["undo", "agent", "--root", str(root)]) == 0
    assert f"resumed the task {child.task_id}" in capsys.readouterr().out
    wait_for(lambda: state_of(child.pid) in {"S", "R"})
    assert (data / "acts.db").exists()
    assert not hold.exists()
    assert service(["undo", "agent", "--root", str(root)]) == 0
    assert capsys.readouterr().out == "nothing was left in force\n"


class BootedRoot(Machine):
    """Root folder whose systemd is the first `systemctl` of PATH."""

    @property
    def runs_systemd(self) -> bool:
        return True


def test_nothing_is_undone_under_an_agent_that_runs(
        root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse that: it would set its limits again."""
    systemctl = tmp_path / "systemctl"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for status, runs in ((0, True), (3, False)):
        systemctl.write_text(f"#!/bin/sh\nexit {status}\n")
        systemctl.chmod(0o755)
        if runs:
            with pytest.raises(CommandError, match="systemctl stop gpudeck-agent"):
                undo(BootedRoot(root), AGENT)
        else:
            assert undo(BootedRoot(root), AGENT) == ([], [])


def test_an_undo_says_what_it_cannot_know(root: Path) -> None:
    (root / "var/lib/gpudeck-agent").mkdir()
    (root / "var/lib/gpudeck-agent/acts.db").write_text("of another program " * 500)
    with pytest.raises(CommandError) as trouble:
        service(["undo", "agent", "--root", str(root)])
    for words in ("memory limits that gpudeck has set may be there still",
                  "power caps and clock locks that gpudeck has set may be there still"):
        assert words in str(trouble.value)


def test_installed_again_it_keeps_what_is_there_and_adds_what_is_not(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person whose first attempt failed types the same again, perhaps with more."""
    at = ["--root", str(root), "--program", PROGRAM]
    first = ["install", "agent", "--hub", "https://hub:8050", "--pool", *at]
    config = root / "etc/gpudeck/agent.toml"
    assert service(first) == 0
    before = config.read_text() + 'metrics = "127.0.0.1:9400"\n'
    config.write_text(before)
    assert service(first) == 0
    assert config.read_text() == before
    certificate = root / "etc/gpudeck/ca.pem"
    certificate.touch()
    capsys.readouterr()
    assert service(["install", "agent", "--ca-file", "/etc/gpudeck/ca.pem", *at]) == 0
    assert f"changed {config}: added ca_file\n" in capsys.readouterr().out
    settings = read(["--config", str(config)], {})
    assert (settings.hub, str(settings.ca_file), settings.metrics) == (
        ("https://hub:8050",), "/etc/gpudeck/ca.pem", ("127.0.0.1", 9400))
    with pytest.raises(CommandError, match="has a hub and stays as it is"):
        service(["install", "agent", "--alone", *at])
    config.write_text("[agent\n")
    with pytest.raises(CommandError, match="is not TOML"):
        service(first)


@pytest.mark.parametrize("is_packaged", [False, True])
@pytest.mark.parametrize("words", [["--grant", "none"], ["--grant", "act,limits"], ["--alone"]])
def test_installed_again_it_may_do_as_much_as_before(
    root: Path, words: list[str], is_packaged: bool
) -> None:
    """An agent that only monitors does not get to end tasks by a command typed again."""
    at = ["--root", str(root), "--program", package(root) if is_packaged else PROGRAM]
    hub = [] if "--alone" in words else ["--hub", "https://hub:8050"]
    assert service(["install", "agent", *hub, *words, *at]) == 0
    drop_ins = root / "etc/systemd/system/gpudeck-agent.service.d"
    before = there(drop_ins)
    assert service(["install", "agent", *at]) == 0
    assert there(drop_ins) == before


def package(root: Path) -> str:
    """Write the files of the Debian package that matter to the command; return the program."""
    library = PurePosixPath("/usr/lib")
    texts = {PACKAGED: "",
             library / f"systemd/system/{AGENT.unit}.service": unit_text(AGENT, str(PACKAGED)),
             library / f"sysusers.d/{AGENT.unit}.conf": sysusers_text(AGENT)}
    for path, text in texts.items():
        place = root / str(path).lstrip("/")
        place.parent.mkdir(parents=True)
        place.write_text(text)
        place.chmod(0o755)
    return str(PACKAGED)


@pytest.mark.parametrize(("alone", "grants"), [
    ([], {"act.conf", "terminals.conf"}), (["--grant", "none"], set()),
    (["--grant", "owners"], {"owners.conf"})])
def test_an_agent_alone_that_gets_its_hub_keeps_what_was_chosen(
    root: Path, alone: list[str], grants: set[str]
) -> None:
    at = ["--root", str(root), "--program", PROGRAM]
    assert service(["install", "agent", "--alone", *alone, *at]) == 0
    assert service(["install", "agent", "--hub", "https://hub:8050", *at]) == 0
    drop_ins = root / "etc/systemd/system/gpudeck-agent.service.d"
    assert {path.name for path in drop_ins.glob("*")} == grants


@pytest.mark.parametrize(("role", "mode"), [(HUB, 0o640), (AGENT, 0o644)])
def test_settings_that_may_be_secret_are_for_root_and_the_service(
    root: Path, role: ServiceRole, mode: int
) -> None:
    """A password is written there later, by an administrator who trusts the file."""
    umask = os.umask(0o077)
    try:
        service(["install", role.name, "--root", str(root), "--program", PROGRAM,
                 *(["--hub", "https://hub:8050"] if role is AGENT else [])])
    finally:
        os.umask(umask)
    config = root / str(role.config).lstrip("/")
    group = next(line.split(":")[2] for line in (root / "etc/group").read_text().splitlines()
                 if line.startswith(f"{role.user}:"))
    about = config.stat()
    assert stat.S_IMODE(about.st_mode) == mode
    assert about.st_gid == (int(group) if role is HUB else 0)
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o755, "services enter it"


def test_a_file_that_is_closed_to_others_stays_closed(root: Path) -> None:
    """The file may hold a password. What a link leads to is not replaced by a file beside it."""
    add = ["install", "hub", "--bind", "127.0.0.1:8050", "--root", str(root), "--program", PROGRAM]
    config = root / "etc/gpudeck/hub.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[hub]\nstate_password = "x"\n')
    config.chmod(0o640)
    os.chown(config, 0, 4_321)
    assert service(add) == 0
    about = config.stat()
    assert (about.st_mode & 0o777, about.st_gid) == (0o640, 4_321)
    assert 'bind = "127.0.0.1:8050"' in config.read_text()
    managed = root / "managed.toml"
    managed.write_text("[hub]\n")
    config.write_bytes(b"[hub]\n# \xff\n")
    with pytest.raises(CommandError, match="can't decode byte 0xff"):
        service([*add, "--public-url", "https://deck.example.org"])
    config.unlink()
    config.symlink_to(managed)
    with pytest.raises(CommandError, match=r"is a link and stays as it is; .* lacks bind"):
        service(add)
    assert config.is_symlink()
    assert managed.read_text() == "[hub]\n"


def test_an_agent_alone_gets_its_hub_later(root: Path, capsys: pytest.CaptureFixture[str]
                                            ) -> None:
    at = ["--root", str(root), "--program", PROGRAM]
    assert service(["install", "agent", "--alone", *at]) == 0
    drop_ins = root / "etc/systemd/system/gpudeck-agent.service.d"
    assert [path.name for path in drop_ins.iterdir()] == ["terminals.conf"], (
        "nobody orders actions from it, but its pool notifies users")
    config = root / "etc/gpudeck/agent.toml"
    alone = read(["--config", str(config)], {})
    assert (alone.alone, alone.hub, alone.local_claims) == (True, (), True)
    assert alone.pool_socket == Path("/run/gpudeck/pool.sock")
    config.write_text(config.read_text() + 'metrics = "127.0.0.1:9400"\n')
    with pytest.raises(CommandError, match="stays as it is"):
        service(["install", "agent", "--metrics", "127.0.0.1:1", *at])
    assert service(["install", "agent", "--hub", "https://hub:8050", *at]) == 0
    assert "it has a hub now" in capsys.readouterr().out
    with_hub = read(["--config", str(config)], {})
    assert (with_hub.alone, with_hub.hub, with_hub.local_claims) == (
        False, ("https://hub:8050",), True)
    assert with_hub.metrics == ("127.0.0.1", 9400)
    assert with_hub.pool_socket == alone.pool_socket
    assert {path.name for path in drop_ins.iterdir()} == {"act.conf", "terminals.conf"}
    with pytest.raises(CommandError, match="stays as it is"):
        service(["install", "agent", "--hub", "https://other:8050", *at])


@pytest.mark.parametrize(("words", "says"), [
    (["--alone", "--hub", "https://h:1", "--program", PROGRAM], "leave --hub"),
    (["--hub", "https://h:1", "--program", "/root/.venv/bin/gpudeck"], "there is no"),
    (["--program", PROGRAM], "name the hub"),
    (["--hub", "https://h:1", "--program", PROGRAM, "--grant", "all"], "there are act, term"),
    (["--hub", "https://h:1", "--program", PROGRAM, "--ca-file", "ca.pem"], "there is no .*/ca"),
    (["--hub", "https://h:1", "--program", PROGRAM, "--token-file", "TOKEN"], "into an image"),
    (["--hub", "deck.example.org", "--program", PROGRAM], "--hub 'deck.example.org': a URL is"),
    (["--hub", "http://deck.example.org", "--program", PROGRAM], "plain http reaches a hub on"),
    (["--hub", "https://h:1", "--metrics", "9400", "--program", PROGRAM], "HOST:PORT is needed")])
def test_what_cannot_work_is_refused_and_writes_nothing(
    root: Path, tmp_path: Path, words: list[str], says: str
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    before = there(root)
    with pytest.raises(CommandError, match=says):
        service(["install", "agent", "--root", str(root),
                 *(str(token) if word == "TOKEN" else word for word in words)])
    assert there(root) == before


def test_a_program_that_services_cannot_see_is_refused(root: Path) -> None:
    hidden = root / "home/ada/venv/bin/gpudeck"
    hidden.parent.mkdir(parents=True)
    shutil.copy("/bin/true", hidden)
    with pytest.raises(CommandError, match="services cannot see"):
        service(["install", "hub", "--root", str(root), "--program",
                 "/home/ada/venv/bin/gpudeck"])


def test_show_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert service(["show", "agent", "--program", PROGRAM, "--grant", "none"]) == 0
    unit = capsys.readouterr().out
    assert f"ExecStart={PROGRAM} agent --config /etc/gpudeck/agent.toml" in unit
    assert "CAP_" not in unit
