"""Tables of settings, each of which makes flags, environment names, `gpudeck.toml` keys and the
docs page.

Order of precedence: flag, environment, file, default. A secret may always be a file: for a setting
marked `secret`, NAME_FILE in the environment and `name_file` in the file are read too.
"""

import argparse
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpudeck.cli.command_parser import CommandParser
from gpudeck.errors import CommandError, ExitCode

SECTION_HELP = "flag > environment > gpudeck.toml > default"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. `parse` turns text into the value, or raises ValueError with a sentence."""

    name: str  # bind -> --bind, GPUDECK_BIND, bind = "…"
    parse: Callable[[str], Any]
    default: Any
    help: str
    secret: bool = False
    choices: tuple[str, ...] | None = None
    is_repeated: bool = False  # its flag may be given several times, as if joined by commas
    default_words: str | None = None  # where the default depends on the machine or the user

    @property
    def default_shown(self) -> str:
        if self.default_words is not None:
            return self.default_words
        if self.parse is address:
            return "{}:{}".format(*self.default)
        if self.parse is flag:
            return "yes" if self.default else "no"
        return "none" if self.default in (None, "") else str(self.default)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def flag_shown(self) -> str:
        """Name of the flag in the docs. A secret has none: arguments are public on a machine."""
        return "" if self.secret else f"`{self.flag}`"

    @property
    def metavar(self) -> str:
        """Name of the value in help."""
        if self.choices is not None:
            return "|".join(self.choices)
        if self.parse is folder and self.name in FOLDERS:
            return "DIR"
        return METAVARS.get(self.parse) or self.name.rpartition("_")[2].upper()

    @property
    def env(self) -> str:
        return "GPUDECK_" + self.name.upper()


def load(program: str, table: Sequence[Setting], argv: Sequence[str], env: Mapping[str, str],
         description: str = "") -> dict[str, Any]:
    """Return the value of every setting of the table, by name. In the file, `[program]` is its
    section."""
    return resolve(program, table, vars(parser(program, table, description).parse_args(list(argv))),
                   env)


def resolve(program: str, table: Sequence[Setting], flags: Mapping[str, Any],
            env: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of every setting from flags that are parsed already."""
    path = flags.get("config") or env.get("GPUDECK_CONFIG")
    from_file = _section(program, table, path, _read_file(path))
    return {setting.name: _resolve(setting, flags, env, from_file) for setting in table}


def parser(program: str, table: Sequence[Setting], description: str) -> argparse.ArgumentParser:
    """Build the parser of these settings; a command may add what is no setting, such as its
    targets."""
    flags_parser = CommandParser(prog=f"gpudeck {program}", description=description,
                                 epilog=f"Settings: {SECTION_HELP}.")
    flags_parser.add_argument("--config", metavar="FILE", help="read settings from this TOML file")
    for setting in table:
        if not setting.secret:
            _add_flag(flags_parser, setting)
    return flags_parser


def also_behind(verb: argparse.ArgumentParser, table: Sequence[Setting]) -> None:
    """Accept the same flags behind the verb, where people type them too. Its help need not repeat
    them."""
    for setting in table:
        if not setting.secret:
            _add_flag(verb, setting, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _add_flag(parser: argparse.ArgumentParser, setting: Setting, **over: Any) -> None:
    text = f"{setting.help} [{setting.env}; default: {setting.default_shown}]".replace("%", "%%")
    options: dict[str, Any] = {"dest": setting.name, "default": None, "help": text, **over}
    if setting.parse is flag:
        parser.add_argument(setting.flag, action=argparse.BooleanOptionalAction, **options)
    else:
        if setting.is_repeated:
            options["action"] = "append"
        parser.add_argument(setting.flag, metavar=setting.metavar, **options)


def _read_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    import tomllib  # most commands have no such file, and `gpudeck top` must start at once

    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", ExitCode.USAGE) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not TOML: {error}", ExitCode.USAGE) from error


def _section(program: str, table: Sequence[Setting], path: str | None,
             content: Mapping[str, Any]) -> Mapping[str, Any]:
    loose = [name for name, value in content.items() if not isinstance(value, dict)]
    if loose:
        raise CommandError(f"{path}: {loose[0]!r} is outside any section; put it under "
                           f"[{program}]", ExitCode.USAGE)
    section: Mapping[str, Any] = content.get(program, {})
    names = {s.name for s in table} | {f"{s.name}_file" for s in table if s.secret}
    if unknown := sorted(set(section) - names):
        raise CommandError(f"{path}: [{program}] has no setting {unknown[0]!r}; there are "
                           f"{', '.join(sorted(names))}", ExitCode.USAGE)
    return section


def _resolve(setting: Setting, flags: Mapping[str, Any], env: Mapping[str, str],
             from_file: Mapping[str, Any]) -> Any:
    raw, source = _raw(setting, flags, env, from_file)
    if raw is None:
        return setting.default
    if setting.is_repeated and isinstance(raw, list):
        raw = ",".join(map(str, raw))
    if not isinstance(raw, str):
        raw = str(raw)
    try:
        value = setting.parse(raw)
    except ValueError as error:
        value_text = "…" if setting.secret else repr(raw)
        raise CommandError(f"{source} {value_text}: {error}", ExitCode.USAGE) from error
    if setting.choices is not None and value not in setting.choices:
        choices = ", ".join(setting.choices)
        raise CommandError(f"{source} {raw!r}: choose one of {choices}", ExitCode.USAGE)
    return value


def _raw(setting: Setting, flags: Mapping[str, Any], env: Mapping[str, str],
         from_file: Mapping[str, Any]) -> tuple[Any, str]:
    if flags.get(setting.name) is not None:
        return flags[setting.name], setting.flag
    if setting.env in env:
        return env[setting.env], setting.env
    if setting.secret and f"{setting.env}_FILE" in env:
        return read_secret(env[f"{setting.env}_FILE"]), f"{setting.env}_FILE"
    if setting.name in from_file:
        return from_file[setting.name], f"{setting.name} in the settings file"
    if setting.secret and f"{setting.name}_file" in from_file:
        return read_secret(from_file[f"{setting.name}_file"]), f"{setting.name}_file"
    return None, ""


def read_secret(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", ExitCode.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"cannot read {path}: it is no text; is it the right file?",
                           ExitCode.USAGE) from error


def text(raw: str) -> str:
    return raw


def folder(raw: str) -> Path:
    return Path(raw).expanduser().absolute()


def state_folder(program: str, env: Mapping[str, str]) -> Path:
    """Return a program's default state folder."""
    base = env.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "gpudeck" / program


def flag(raw: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True,
             "0": False, "false": False, "no": False, "off": False}
    if raw.lower() not in words:
        raise ValueError("say yes or no")
    return words[raw.lower()]


def count(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or int(raw) < 1:
        raise ValueError("a whole number from 1 up is needed")
    return int(raw)


def whole(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit():
        raise ValueError("a whole number is needed")
    return int(raw)


def port(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit() or int(raw) > 65_535:
        raise ValueError("a port from 0 to 65535 is needed (0 picks a free one)")
    return int(raw)


def address(raw: str) -> tuple[str, int]:
    """Parse HOST:PORT; an IPv6 host stands in brackets."""
    host, colon, number = raw.rpartition(":")
    if not colon or not host:
        raise ValueError("HOST:PORT is needed, for example 127.0.0.1:8050")
    return host.strip("[]"), port(number)


def hub_url(raw: str) -> str:
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a URL is needed, for example http://127.0.0.1:8050")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL must not contain a secret; give the token separately")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("plain http reaches a hub on this machine only; use https, or "
                         "`ssh -L 8050:127.0.0.1:8050` and http://127.0.0.1:8050")
    return raw.rstrip("/")


def hub_urls(raw: str) -> tuple[str, ...]:
    """Parse several URLs of one hub, with commas between them."""
    return tuple(dict.fromkeys(hub_url(url.strip()) for url in raw.split(",")))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


FOLDERS = ("data",)
METAVARS: dict[Callable[[str], Any], str] = {
    hub_url: "URL", hub_urls: "URL",
    address: "HOST:PORT", count: "N", whole: "N", port: "PORT", folder: "FILE"}
