"""Commands, configurations and messages of how-to pages: commands are parsed by the commands'
own parsers, configurations are run, messages are in the code."""

import argparse
import ast
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.journal.store import ActionJournal, ActionStore
from agent.limits.stores import RepairStore
from docs.make_completion import _callable
from docs.make_completion import commands as entry_points
from gpudeck.contract.repairs import WHOLE_NODE, GpuRepair
from gpudeck.errors import CommandError

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
COMMANDS = entry_points()
FOR_EACH = ("install", "workstation", "slurm", "jupyterhub", "containers", "moving", "upgrade",
            "uninstall", "troubleshooting")


def blocks(page: Path, kind: str) -> list[str]:
    """`kind` '': those that say none."""
    sections, opened = list[tuple[str, list[str]]](), False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            opened = not opened
            if opened:
                sections.append((line[3:], []))
        elif opened:
            sections[-1][1].append(line + "\n")
    return ["".join(lines) for language, lines in sections if language == kind]


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `gpudeck` of each line of its `sh` blocks, and of the lines in plain blocks
    that begin with it."""
    plain = [line for block in blocks(page, "")
             for line in block.replace("\\\n", " ").splitlines(keepends=True)
             if re.match(r"(\$ )?gpudeck (?!\S* ?\S*\w\|\w)[^#|]*\S( +#|$)", line)
             and not re.search(r"\S {2,}[^ #]", line)]
    for block in (*blocks(page, "sh"), "".join(plain)):
        for line in block.replace("\\\n", " ").splitlines():
            if "gpudeck" not in line:
                continue
            words = shlex.split(line, comments=True)
            at = next((at for at, word in enumerate(words)
                       if word == "gpudeck" or word.endswith("/gpudeck")), None)
            if at is not None and words[at + 1:]:
                end = next((at for at, word in enumerate(words)
                            if word in (">", "|", "&&", ";", "<", "&")), len(words))
                yield words[at + 1:end]


ALL = [(page.stem, words) for page in PAGES for words in commands(page)]


class _ParsedError(Exception):
    """The command was understood, and goes no further."""


@pytest.fixture(name="parse")
def _parse(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    original = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser, *words: Any) -> None:
        original(parser, *words)
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)

    def parse(words: list[str]) -> None:
        with pytest.raises(_ParsedError):
            _callable(COMMANDS[words[0]])(words[1:])

    return parse


@pytest.mark.parametrize(("page", "words"), ALL, ids=lambda word: " ".join(word)[:60] if isinstance(
    word, list) else word)
def test_commands_are_such(parse: Callable[[list[str]], None], page: str, words: list[str]
                           ) -> None:
    parse(words)


@pytest.mark.parametrize("words", [
    ["service", "install", "agents"], ["token", "create", "agent", "--use", "3"],
    ["hub", "backup", "x", "--pass", "y"]])
def test_the_check_can_fail(parse: Callable[[list[str]], None], words: list[str]) -> None:
    assert {page for page, _ in ALL} >= set(FOR_EACH)
    with pytest.raises(CommandError):
        parse(words)


def mentioned(page: Path) -> Iterator[list[str]]:
    """The words behind `gpudeck` where a sentence names a command, whole or in part."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for code in sorted(set(re.findall(r"`gpudeck ([a-z][^`]*)`", prose))):
        yield shlex.split(re.sub(r"[][…]", "", re.split(r" [<>|] ", code)[0]))


MISNAMED = re.compile(r"no flag '|\bno '|unrecognized arguments")


def misnamed(parse: Callable[[list[str]], None], words: list[str]) -> str:
    """Return the part of it that there is not; that one is wanting is no mistake of a sentence."""
    try:
        parse(words)
    except CommandError as error:
        return str(error) if MISNAMED.search(str(error)) else ""
    return ""


@pytest.mark.parametrize(("page", "words"), [
    (page.stem, words) for page in PAGES for words in mentioned(page)],
    ids=lambda word: " ".join(word)[:60] if isinstance(word, list) else word)
def test_commands_that_sentences_name_are_such(parse: Callable[[list[str]], None], page: str,
                                               words: list[str]) -> None:
    assert words[0] in COMMANDS
    assert misnamed(parse, words) == ""


def test_a_command_that_there_is_not_is_found(parse: Callable[[list[str]], None]) -> None:
    for words in (["node", "cordn"], ["pool", "--everything"], ["hub", "backp"], ["quota", "st"]):
        assert misnamed(parse, words)


def texts() -> str:
    """Return all that programs may say, with what stands in braces left out."""
    parts = []
    for program in ("agent", "dashboard", "gpudeck"):
        for path in (ROOT / program).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts.append("".join(str(part.value) if isinstance(part, ast.Constant) else "…"
                                         for part in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    parts.append(node.value)
    return "\n".join(parts)


def test_messages_to_look_for_are_in_the_code() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    listed = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    assert len(listed) >= 10
    program_texts = texts()
    assert [message for message in listed if message not in program_texts] == []
    assert "this hub does not know this planet" not in program_texts


@pytest.fixture(name="scripts")
def _scripts(tmp_path: Path) -> dict[str, Path]:
    """Write the scripts of the page on Slurm; return their paths by name."""
    scripts = {}
    for block in blocks(ROOT / "docs/slurm.md", "bash"):
        name = re.findall(r"/etc/slurm/(\w+)\.sh", block)[0]
        scripts[name] = tmp_path / name
        scripts[name].write_text(block)
        scripts[name].chmod(0o755)
    command = tmp_path / "gpudeck"
    command.write_text(f"#!/bin/sh\ncd {ROOT}\nexec {sys.executable} -m gpudeck.cli.main \"$@\"\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return scripts


def run(script: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script], capture_output=True, text=True, env={
        **os.environ, "GPUDECK": str(script.with_name("gpudeck")), **env})


def test_slurms_prolog_refuses_a_job_on_a_node_that_is_out_of_service(
    scripts: dict[str, Path], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert run(scripts["prolog"], GPUDECK_DATA=str(data)).returncode == 0
    data.mkdir(mode=0o700)
    store = ActionStore(data / "acts.db")
    RepairStore(ActionJournal(store)).keep(GpuRepair(
        WHOLE_NODE, "cordoned", "ops", "a fan", 1.0, 1.0, "boot"))
    store.close()
    refusal = run(scripts["prolog"], GPUDECK_DATA=str(data))
    assert (refusal.returncode, "out of service" in refusal.stderr) == (1, True)
    # A gpudeck that cannot answer stops no job.
    (tmp_path / "gpudeck").write_text("#!/bin/sh\nexit 3\n")
    assert run(scripts["prolog"], GPUDECK_DATA=str(data)).returncode == 0


def test_jupyterhubs_hook_gives_each_user_their_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUDECK_TOKENS", str(tmp_path))
    (tmp_path / "alice").write_text("gdk-secret\n")
    config: Any = SimpleNamespace(Spawner=SimpleNamespace())
    [text] = blocks(ROOT / "docs/jupyterhub.md", "python")
    exec(text, {"c": config})  # as JupyterHub itself does

    def environment(user: str) -> dict[str, str]:
        spawner = SimpleNamespace(user=SimpleNamespace(name=user), environment={})
        config.Spawner.pre_spawn_hook(spawner)
        variables: dict[str, str] = spawner.environment
        return variables

    assert environment("alice") == {"GPUDECK_HUB": "https://deck.example.org",
                                    "GPUDECK_TOKEN": "gdk-secret"}
    assert environment("bob") == {}
