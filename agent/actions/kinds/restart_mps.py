"""Stops a control daemon of MPS and starts another one with the same defaults."""

from collections.abc import Iterable, Iterator

from gpudeck.limits import MpsRestart, SettingChange

from ...journal.store import JournalError
from ...limits.mps import MpsControlError, MpsDaemonHandle
from ...limits.mps_store import Default, MpsSettingStore, as_it_is
from .execution import ActionExecution
from .mps_daemon import clients_lose, daemon_trouble, needs_daemon
from .set_mps import set_values
from .setting_kind import Applied, MpsPreview, SettingKind
from .stop_mps import stop


def changes(setting: MpsRestart, _preview: MpsPreview) -> tuple[SettingChange, ...]:
    return (SettingChange(f"control daemon in {setting.pipes}", "runs",
                          "another one, with the same defaults"),)


def warnings(_setting: MpsRestart, preview: MpsPreview) -> Iterator[str]:
    yield from clients_lose(preview)
    yield ("The defaults are set again afterwards, memory limits that gpudeck has not set in whole "
           "GiB, as MPS shows them; what was set for single servers is lost with them.")
    yield from daemon_trouble(preview)


def do(act: ActionExecution, setting: MpsRestart) -> Applied:
    daemon = act.context.limits.mps.daemon(setting.pipes)
    store = act.context.limits.mps_settings
    before, left_out = as_it_is(daemon, setting.pipes, _wanted(store, str(daemon.folder)))
    applied, is_gone, words = stop(act, daemon, setting)
    if not is_gone:
        return applied, False, words
    act.say("it has ended; it is started again")
    if trouble := daemon.start():
        return False, False, f"it has ended and does not start again: {trouble}"
    if wrong := [*left_out, *_restored(store, daemon, before)]:
        return True, False, "started again; of its defaults not in force: " + "; ".join(wrong)
    return True, True, "started again, with the same defaults"


def _wanted(store: MpsSettingStore, pipes: str) -> tuple[Default, ...]:
    """As gpudeck has set it: MPS itself shows whole GiB."""
    try:
        return tuple(each for each in store.wanted() if each.pipes == pipes)
    except JournalError:
        return ()


def _restored(store: MpsSettingStore, daemon: MpsDaemonHandle, before: Iterable[Default]
              ) -> list[str]:
    """What is not: one that is refused keeps none of the others from being set."""
    wrong = []
    for each in before:
        try:
            wrong += set_values(store, daemon, each)
        except (MpsControlError, ValueError) as why:  # others may have set what is out of our range
            wrong.append(str(why))
    return [each for each in wrong if each]


RESTART_MPS = SettingKind(MpsRestart, needs_daemon, changes, warnings, do)
