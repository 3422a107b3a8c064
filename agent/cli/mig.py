"""`gpudeck mig`: which placements a layout of MIG instances takes, which asks no driver and changes
nothing; and the layout of a board that is out of service, with the same preview, gate and audit as
any act."""

import argparse
import json
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpudeck.action_table import GRACE_S
from gpudeck.action_words import printable
from gpudeck.errors import CommandError, ExitCode
from gpudeck.limits import MigLayout, action_of
from gpudeck.mig.boards import BOARDS, MigProfile
from gpudeck.mig.planner import Layout, MigPlan, NoLayoutError, plan
from gpudeck.mig.wishes import (
    NOTHING,
    WishError,
    from_mig_parted,
    mig_parted_words,
    parse_wish,
    to_mig_parted,
    wish_words,
)
from gpudeck.settings import also_behind, parser

from ..actions.hold_files import driver_order
from ..backends import backend_named
from ..limits import mig_layouts
from ..limits.apply import LimitApplier
from ..settings import ConnectionSettings, read_reach
from .action_settings import TABLE
from .actions import answer
from .limits import held_here
from .local_reading import read_once
from .setting_actions import board_uuid, checked, do, node_id

_THERE = re.compile(r"([^@\s]+)@([0-7])")


def mig(argv: Sequence[str]) -> int:
    asked = _parser().parse_args(list(argv))
    if asked.verb == "boards":
        return _boards(asked.json)
    if asked.verb == "show":
        return _show(asked)
    if asked.verb in ("apply", "remove"):
        return _change(asked)
    profiles = BOARDS[asked.board]
    try:
        wish = _wish(asked, profiles)
        made = plan(profiles, _there(asked.present, profiles), wish, _there(asked.busy, profiles))
    except (WishError, NoLayoutError) as why:
        raise CommandError(str(why), ExitCode.USAGE) from why
    if asked.mig_parted:
        document = to_mig_parted("gpudeck", asked.gpu, wish, profiles)
        print(json.dumps(document, indent=2))  # JSON is YAML too
        return ExitCode.OK
    _print(asked, made, wish_words(wish, profiles), profiles)
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    made = parser("mig", TABLE, "Layouts of MIG instances: plan, apply, remove.")
    verbs = made.add_subparsers(dest="verb", metavar="VERB", required=True)
    boards = verbs.add_parser("boards", help="profiles of each board", description="Profiles.")
    boards.add_argument("--json", action="store_true", help="one JSON document")
    words = "how each board is split, and which layout gpudeck keeps there"
    show = verbs.add_parser("show", help=words, description=words)
    show.add_argument("--node", metavar="NODE", help="with --hub: this node, by name or id")
    also_behind(show, TABLE)
    do = verbs.add_parser("plan", help="which placements a layout takes, and the commands for it",
                          description="Which placements a layout takes, and the commands for it.")
    do.add_argument("wish", metavar="LAYOUT", nargs="?",
                    help=f"such as '2x 3g.40gb + 1x 1g.10gb', or {NOTHING}")
    do.add_argument("--board", choices=tuple(BOARDS), required=True, help="the kind of board")
    do.add_argument("--gpu", type=int, default=0, metavar="N", help="its number, for the commands")
    for name, words in (("present", "instances that are there, such as 3g.40gb@4,1g.10gb@0"),
                        ("busy", "instances in use; they stay")):
        do.add_argument(f"--{name}", default="", metavar="LIST", help=words)
    do.add_argument("--from", dest="file", type=Path, metavar="FILE",
                    help="a file of mig-parted in place of LAYOUT, with --config")
    do.add_argument("--config", dest="named", metavar="NAME", help="of that file")
    do.add_argument("--mig-parted", action="store_true",
                    help="print the layout as a file for mig-parted")
    do.add_argument("--json", action="store_true", help="one JSON document")
    _add_changes(verbs)
    return made


def _add_changes(verbs: Any) -> None:
    for name, words in (
            ("apply", "split a GPU that is out of service; instances in use stay where they are"),
            ("remove", "destroy all instances of a GPU that is out of service")):
        verb = verbs.add_parser(name, help=words, description=words)
        if name == "apply":
            verb.add_argument("wish", metavar="LAYOUT", nargs="?",
                              help="such as '2x 3g.40gb + 1x 1g.10gb'")
            verb.add_argument("--from", dest="file", type=Path, metavar="FILE",
                              help="a file of mig-parted in place of LAYOUT, with --config and "
                                   "the number of the GPU")
            verb.add_argument("--config", dest="named", metavar="NAME", help="of that file")
        verb.add_argument("--node", metavar="NODE", help="with --hub: its name or id")
        verb.add_argument("--gpu", metavar="GPU", required=True, help="by number or UUID")
        verb.add_argument("--reason", metavar="TEXT", help="why; everybody sees it")
        verb.add_argument("--yes", action="store_true", help="do not ask for confirmation")
        verb.set_defaults(grace=GRACE_S)
        also_behind(verb, TABLE)


def _show(asked: argparse.Namespace) -> int:
    reach = read_reach("mig", TABLE, asked, os.environ)
    if reach.hub is None:
        items = _here(reach)
    else:
        client = reach.client()
        items = client.mig(None if asked.node is None else node_id(client, asked.node))
    return answer(reach, {"items": items}, *(map(_line, items) if items else
                                             ["no board here can be split by MIG"]))


def _here(reach: ConnectionSettings) -> list[dict[str, Any]]:
    """As the driver says now."""
    applier = LimitApplier(backend_named(reach.backend), reach.simulate,
                           partial(driver_order, reach.data))
    kept = {each["gpu_uuid"]: each for each in held_here(reach.data)["layouts"]}
    boards = [each for each in read_once(reach, 1)[0].facts if each.parent_uuid is None]
    seen = [(each, applier.mig(each.uuid)) for each in boards]
    return [{"host": "here", "gpu": facts.uuid, "index": facts.index, "is_on": board.is_on,
             "now": None if board.trouble else mig_layouts.words(board), "trouble": board.trouble,
             "wanted": kept.get(facts.uuid)}
            for facts, board in seen if not board.trouble or facts.uuid in kept]


def _line(item: dict[str, Any]) -> str:
    wanted = item["wanted"]
    kept = "no layout is kept" if wanted is None else (
        f"kept: {wanted['layout']}, {wanted['state'].replace('_', ' ')}: {wanted['words']}")
    return printable(f"{item['host']}  GPU {item['index']}  now: {item['now'] or 'not known'}  "
                     f"{kept}")


def _change(asked: argparse.Namespace) -> int:
    reach = read_reach("mig", TABLE, asked, os.environ)
    if reach.hub is None and asked.node is not None:
        raise CommandError("without --hub this machine is meant; name no node", ExitCode.USAGE)
    layout = NOTHING if asked.verb == "remove" else _layout(asked)
    setting = MigLayout(board_uuid(reach, asked), layout)
    checked(setting)
    return do(reach, asked, action_of(setting), None, setting)


def _layout(asked: argparse.Namespace) -> str:
    """The node resolves it against the profiles of its GPU."""
    _check_one_wish(asked)
    if asked.file is None:
        return str(asked.wish)
    if not asked.gpu.isascii() or not asked.gpu.isdigit():
        raise CommandError("a file of mig-parted knows GPUs by number: give --gpu N",
                           ExitCode.USAGE)
    try:
        return mig_parted_words(_read(asked.file), asked.named, int(asked.gpu))
    except WishError as why:
        raise CommandError(str(why), ExitCode.USAGE) from why


def _check_one_wish(asked: argparse.Namespace) -> None:
    if (asked.wish is None) == (asked.file is None) or bool(asked.file) != bool(asked.named):
        raise CommandError("give a LAYOUT, or --from FILE with --config NAME", ExitCode.USAGE)


def _wish(asked: argparse.Namespace, profiles: Sequence[MigProfile]) -> Any:
    _check_one_wish(asked)
    if asked.file is None:
        return parse_wish(asked.wish, profiles)
    return from_mig_parted(_read(asked.file), asked.named, asked.gpu, profiles)


def _read(file: Path) -> Any:
    try:
        from gpudeck.strict_yaml import InvalidYamlError, load  # a node need not carry YAML
    except ModuleNotFoundError as error:
        raise CommandError("to read this file PyYAML is needed: pip install 'gpudeck[hub]'",
                           ExitCode.CANNOT_START) from error
    try:
        return load(file.read_text())
    except (OSError, UnicodeDecodeError, InvalidYamlError) as error:
        raise CommandError(f"{file}: {error}", ExitCode.USAGE) from error


def _there(text: str, profiles: Sequence[MigProfile]) -> list[tuple[int, int]]:
    ids = {each.name: each.id for each in profiles}
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _THERE.fullmatch(part)
        if match is None or match[1] not in ids:
            raise WishError(f"{part[:40]!r} is not an instance of this board; write PROFILE@START, "
                            f"such as {profiles[-1].name}@0")
        found.append((ids[match[1]], int(match[2])))
    return found


def _boards(is_json: bool) -> int:
    if is_json:
        print(json.dumps({name: [{"id": each.id, "name": each.name, "slices": each.slices,
                                  "starts": each.starts, "most": each.most} for each in found]
                          for name, found in BOARDS.items()}))
        return ExitCode.OK
    for name, found in BOARDS.items():
        print(name)
        for each in found:
            starts = ", ".join(map(str, each.starts))
            print(f"  {each.id:3}  {each.name:12}  at most {each.most}, starts at {starts}")
    return ExitCode.OK


def _print(asked: argparse.Namespace, made: MigPlan, words: str, profiles: Sequence[MigProfile]
           ) -> None:
    names = {each.id: each.name for each in profiles}
    if asked.json:
        print(json.dumps({"layout": words, **{
            name: [{"id": each, "name": names[each], "start": start} for each, start in part]
            for name, part in (("keep", made.keep), ("destroy", made.destroy),
                               ("create", made.create))}}))
        return
    print(f"{asked.board}: {words}")
    for name, part in (("keep", made.keep), ("destroy", made.destroy), ("create", made.create)):
        print(f"  {name:8}{_listed(part, names) or 'nothing'}")
    if made.create:
        places = ",".join(f"{each}:{start}" for each, start in made.create)
        print("\nas root, once the instances to destroy are unused (`nvidia-smi mig -lgi` has its "
              f"ids):\n  nvidia-smi mig -i {asked.gpu} -cgi {places} -C")


def _listed(part: Layout, names: dict[int, str]) -> str:
    return ", ".join(f"{names[each]} at {start}" for each, start in part)
