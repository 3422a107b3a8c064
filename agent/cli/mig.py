"""`gpudeck mig`: plan which placements a layout of MIG instances takes, which asks no driver and
changes nothing; and set the layout of a board that is out of service, with the same preview, gate
and audit as any action."""

import argparse
import json
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpudeck.contract.action_table import GRACE_S
from gpudeck.contract.limits import MigLayout, action_of
from gpudeck.errors import CommandError, ExitCode
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
from gpudeck.words.actions import printable

from ..actions.hold_files import driver_order
from ..backends import backend_named
from ..limits import mig_layouts
from ..limits.apply import LimitApplier
from ..settings import ConnectionSettings, read_reach
from .action_settings import TABLE
from .actions import answer
from .limits import limits_here
from .local_reading import read_once
from .setting_actions import board_uuid, do, node_id, validate

_INSTANCE = re.compile(r"([^@\s]+)@([0-7])")


def mig(argv: Sequence[str]) -> int:
    args = _parser().parse_args(list(argv))
    if args.verb == "boards":
        return _boards(args.json)
    if args.verb == "show":
        return _show(args)
    if args.verb in ("apply", "remove"):
        return _change(args)
    profiles = BOARDS[args.board]
    try:
        wish = _wish(args, profiles)
        mig_plan = plan(profiles, _instances(args.present, profiles), wish,
                        _instances(args.busy, profiles))
    except (WishError, NoLayoutError) as why:
        raise CommandError(str(why), ExitCode.USAGE) from why
    if args.mig_parted:
        document = to_mig_parted("gpudeck", args.gpu, wish, profiles)
        print(json.dumps(document, indent=2))  # JSON is YAML too
        return ExitCode.OK
    _print(args, mig_plan, wish_words(wish, profiles), profiles)
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    flags = parser("mig", TABLE, "Layouts of MIG instances: plan, apply, remove.")
    verbs = flags.add_subparsers(dest="verb", metavar="VERB", required=True)
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
    return flags


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


def _show(args: argparse.Namespace) -> int:
    reach = read_reach("mig", TABLE, args, os.environ)
    if reach.hub is None:
        items = _here(reach)
    else:
        client = reach.client()
        items = client.mig(None if args.node is None else node_id(client, args.node))
    return answer(reach, {"items": items}, *(map(_line, items) if items else
                                             ["no board here can be split by MIG"]))


def _here(reach: ConnectionSettings) -> list[dict[str, Any]]:
    """Return the boards as the driver reports them now."""
    applier = LimitApplier(backend_named(reach.backend), reach.simulate,
                           partial(driver_order, reach.data))
    layouts = {row["gpu_uuid"]: row for row in limits_here(reach.data)["layouts"]}
    boards = [gpu for gpu in read_once(reach, 1)[0].facts if gpu.parent_uuid is None]
    board_states = [(gpu, applier.mig(gpu.uuid)) for gpu in boards]
    return [{"host": "here", "gpu": facts.uuid, "index": facts.index, "is_on": board.is_on,
             "now": None if board.trouble else mig_layouts.words(board), "trouble": board.trouble,
             "wanted": layouts.get(facts.uuid)}
            for facts, board in board_states if not board.trouble or facts.uuid in layouts]


def _line(item: dict[str, Any]) -> str:
    layout = item["wanted"]
    words = "no layout is kept" if layout is None else (
        f"kept: {layout['layout']}, {layout['state'].replace('_', ' ')}: {layout['words']}")
    return printable(f"{item['host']}  GPU {item['index']}  now: {item['now'] or 'not known'}  "
                     f"{words}")


def _change(args: argparse.Namespace) -> int:
    reach = read_reach("mig", TABLE, args, os.environ)
    if reach.hub is None and args.node is not None:
        raise CommandError("without --hub this machine is meant; name no node", ExitCode.USAGE)
    layout = NOTHING if args.verb == "remove" else _layout(args)
    setting = MigLayout(board_uuid(reach, args), layout)
    validate(setting)
    return do(reach, args, action_of(setting), None, setting)


def _layout(args: argparse.Namespace) -> str:
    """Return the layout as text: the node resolves it against the profiles of its GPU."""
    _check_one_wish(args)
    if args.file is None:
        return str(args.wish)
    if not args.gpu.isascii() or not args.gpu.isdigit():
        raise CommandError("a file of mig-parted knows GPUs by number: give --gpu N",
                           ExitCode.USAGE)
    try:
        return mig_parted_words(_read(args.file), args.named, int(args.gpu))
    except WishError as why:
        raise CommandError(str(why), ExitCode.USAGE) from why


def _check_one_wish(args: argparse.Namespace) -> None:
    if (args.wish is None) == (args.file is None) or bool(args.file) != bool(args.named):
        raise CommandError("give a LAYOUT, or --from FILE with --config NAME", ExitCode.USAGE)


def _wish(args: argparse.Namespace, profiles: Sequence[MigProfile]) -> Any:
    _check_one_wish(args)
    if args.file is None:
        return parse_wish(args.wish, profiles)
    return from_mig_parted(_read(args.file), args.named, args.gpu, profiles)


def _read(file: Path) -> Any:
    try:
        from gpudeck.language.strict_yaml import (  # a node need not carry YAML
            InvalidYamlError,
            load,
        )
    except ModuleNotFoundError as error:
        raise CommandError("to read this file PyYAML is needed: pip install 'gpudeck[hub]'",
                           ExitCode.CANNOT_START) from error
    try:
        return load(file.read_text())
    except (OSError, UnicodeDecodeError, InvalidYamlError) as error:
        raise CommandError(f"{file}: {error}", ExitCode.USAGE) from error


def _instances(text: str, profiles: Sequence[MigProfile]) -> list[tuple[int, int]]:
    ids = {profile.name: profile.id for profile in profiles}
    instances = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        match = _INSTANCE.fullmatch(part)
        if match is None or match[1] not in ids:
            raise WishError(f"{part[:40]!r} is not an instance of this board; write PROFILE@START, "
                            f"such as {profiles[-1].name}@0")
        instances.append((ids[match[1]], int(match[2])))
    return instances


def _boards(is_json: bool) -> int:
    if is_json:
        print(json.dumps({
            name: [{"id": profile.id, "name": profile.name, "slices": profile.slices,
                    "starts": profile.starts, "most": profile.most} for profile in profiles]
            for name, profiles in BOARDS.items()}))
        return ExitCode.OK
    for name, profiles in BOARDS.items():
        print(name)
        for profile in profiles:
            starts = ", ".join(map(str, profile.starts))
            print(f"  {profile.id:3}  {profile.name:12}  at most {profile.most}, "
                  f"starts at {starts}")
    return ExitCode.OK


def _print(args: argparse.Namespace, mig_plan: MigPlan, words: str, profiles: Sequence[MigProfile]
           ) -> None:
    names = {profile.id: profile.name for profile in profiles}
    if args.json:
        print(json.dumps({"layout": words, **{
            name: [{"id": profile_id, "name": names[profile_id], "start": start}
                   for profile_id, start in part]
            for name, part in (("keep", mig_plan.keep), ("destroy", mig_plan.destroy),
                               ("create", mig_plan.create))}}))
        return
    print(f"{args.board}: {words}")
    for name, part in (("keep", mig_plan.keep), ("destroy", mig_plan.destroy),
                       ("create", mig_plan.create)):
        print(f"  {name:8}{_part_words(part, names) or 'nothing'}")
    if mig_plan.create:
        places = ",".join(f"{profile_id}:{start}" for profile_id, start in mig_plan.create)
        print("\nas root, once the instances to destroy are unused (`nvidia-smi mig -lgi` has its "
              f"ids):\n  nvidia-smi mig -i {args.gpu} -cgi {places} -C")


def _part_words(part: Layout, names: dict[int, str]) -> str:
    return ", ".join(f"{names[profile_id]} at {start}" for profile_id, start in part)
