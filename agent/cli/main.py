"""`gpudeck agent`, `gpudeck status`, `gpudeck tasks`: from flags to parts, and from parts to exit
codes."""

import gc
import logging
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from getpass import getpass
from types import FrameType
from typing import TYPE_CHECKING

from gpudeck import __version__
from gpudeck.errors import CommandError, ExitCode
from gpudeck.network.keys import spaced
from gpudeck.network.tls import tls_context
from gpudeck.service.notify import ServiceNotifier

from ..actions.ceiling import foreign_pids
from ..actions.hold_files import driver_order, holds, hub_file, hub_holds, visible_hold_files
from ..actions.signals import make_room
from ..backends import SIMULATED, backend_named
from ..backends.recorded import FORMAT, RecordingHeader
from ..journal.store import ActionStore
from ..kubernetes.core import KubernetesError
from ..kubernetes.kubelet import KubeletSocket
from ..limits.mps import LocalMpsDaemons
from ..limits.suspensions import suspended_here
from ..link.identity import NodeIdentity, belongs_to_a_hub, forget_hub, node_key, pinned_hub
from ..link.outbox import Outbox
from ..link.outbox_file import OutboxFile
from ..link.socket import TlsOf
from ..node import run_node
from ..node_config import NodeConfig
from ..reader.recording import RecordingWriter
from ..reader.watchdog import ReaderProcess, phase_of
from ..runtime.data_lock import DataFolderLock
from ..schedulers import MadeUpSchedulers, Schedulers
from ..settings import (
    AgentSettings,
    ConnectionSettings,
    enrolment_tokens,
    read,
    read_show,
    read_tokens,
    this_host,
)
from ..slurm.programs import SlurmPrograms
from ..tasks.boot_id import boot_id
from ..tasks.name_cache import WorkloadNameCache
from ..tasks.task_table import TaskTable
from ..telemetry import status_table as show
from ..telemetry.prometheus import MetricsPage
from ..telemetry.self_cost import AgentCostMeter, disk_trouble
from .local_reading import OTHERS_WITHIN_S, NoReadingError, read_once

if TYPE_CHECKING:
    from ..kubernetes.api_server import ApiServer

OK = {"state": "ok"}  # for a fleet: each node has its own state

log = logging.getLogger("gpudeck.agent.cli")


def agent(argv: Sequence[str]) -> int:
    settings = read(argv)
    log_to_stderr()
    if settings.pipe:
        from .notebook import run_piped  # loads more than a daemon needs

        run_piped(settings)
        return ExitCode.OK
    make_room()
    tls_of = partial(tls_context, ca_file=settings.ca_file)
    for url in settings.hub:
        tls_of(url)  # what cannot be read is reported at the start
    with DataFolderLock(settings.data):
        if settings.forget_hub:
            forget_hub(settings.data)
        identity = _identity(settings)
        if identity is None:
            print("forgotten; this node is not enrolled with a hub now")
            return ExitCode.OK
        stop = threading.Event()
        stop_on_signals(stop)
        journal = OutboxFile(settings.data / "journal.db")
        try:
            _run(settings, identity, tls_of, journal, stop)
        finally:
            journal.close()
    log.info("stopped")
    return ExitCode.OK


def _identity(settings: AgentSettings) -> NodeIdentity | None:
    """Return the node's identity. None: the hub was to be forgotten, and no other was named."""
    belongs = belongs_to_a_hub(settings.data)
    if settings.alone:
        hub = pinned_hub(settings.data, None) if belongs else ""
        return NodeIdentity(node_key(settings.data), hub)
    is_token_gone = belongs and settings.token_file is not None and not settings.token_file.exists()
    tokens = [] if is_token_gone else enrolment_tokens(settings.token_file, os.environ)
    if not tokens and settings.forget_hub:
        return None
    if not tokens and not belongs and sys.stdin.isatty():
        tokens = read_tokens(getpass("enrolment token (from `gpudeck token create agent`): "), "")
    token = tokens[0] if tokens else None
    hub = pinned_hub(settings.data, None if token is None else token.hub)
    return NodeIdentity(node_key(settings.data), hub, token)


def _run(settings: AgentSettings, identity: NodeIdentity, tls_of: TlsOf,
         journal: OutboxFile, stop: threading.Event) -> None:
    backend = backend_named(settings.backend)
    log.info("started node=%s host=%s hub=%s backend=%s data=%s",
             identity.node_id, settings.host, ",".join(settings.hub) or "none", backend.name,
             settings.data)
    if settings.alone:
        log.info("alone: `gpudeck run` and `gpudeck pool` find it at %s", settings.pool_socket)
    if identity.token is not None:
        # An admin who approves it compares these two.
        log.info("fingerprint %s", spaced(identity.node_id))
    recording = _recording(settings, backend.name)
    metrics = _metrics(settings)
    service = ServiceNotifier()
    source = ReaderProcess(backend.name, settings.reader_options,
                           partial(driver_order, settings.data), phase_of(identity.node_id))
    outbox = Outbox(journal)
    if outbox.latest_inventory is not None:
        source.remember(outbox.latest_inventory.gpus)
    config = NodeConfig(
        hubs=settings.hub, tls_of=tls_of, identity=identity, host=settings.host,
        backend=backend, boot_id=boot_id(), platform=platform.platform(), data=settings.data,
        acts=ActionStore(settings.data / "acts.db"), ceiling=settings.ceiling,
        recording=recording, metrics=metrics, options=settings.reader_options, alive=service.beat,
        pool_socket=settings.pool_socket, managed_by=settings.managed_by,
        local_claims=settings.local_claims,
        exclusive_leases=settings.exclusive_leases, limits_memory=settings.memory_limits,
        asks_serving=settings.serving_metrics,
        asks_nccl=settings.nccl_ras,
        schedulers=Schedulers(
            SlurmPrograms() if settings.slurm else None, _kubernetes(settings),
            None if settings.kubelet_socket is None else KubeletSocket(settings.kubelet_socket),
            _made_up(settings, backend.name)),
        pool_unused_s=settings.pool_unused_s, hub_file=hub_file(os.environ))
    gc.freeze()  # what exists now stays: no collection needs to scan it again
    try:
        run_node(config, source, outbox, stop, source)
    finally:
        source.close()
        config.acts.close()
        if recording is not None:
            recording.close()


def _recording(settings: AgentSettings, backend: str) -> RecordingWriter | None:
    if settings.record is None:
        return None
    head = RecordingHeader(FORMAT, settings.host, backend, __version__)
    return RecordingWriter(settings.record, head, settings.record_max_mib * 2**20)


def _kubernetes(settings: AgentSettings) -> "ApiServer | None":
    if not settings.kubernetes:
        return None
    from ..kubernetes.api_server import ApiServer  # loads HTTP, which few agents need

    try:
        return ApiServer.of(settings.kubernetes, settings.kubernetes_token_file,
                            settings.kubernetes_ca_file)
    except KubernetesError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error


def _made_up(settings: AgentSettings, backend: str) -> MadeUpSchedulers | None:
    if backend != SIMULATED.name:
        return None
    from ..backends.simulation import made_up_schedulers  # only for a demo
    from ..backends.simulation.reader import parse_options

    options = parse_options(settings.reader_options)
    return None if not options.cluster else MadeUpSchedulers(
        lambda: made_up_schedulers.slurm_now(options, time.time()),
        lambda: made_up_schedulers.kubernetes_now(options, time.time()))


def _metrics(settings: AgentSettings) -> MetricsPage | None:
    if settings.metrics is None:
        return None
    from ..telemetry.prometheus_server import serve  # loads libraries that few agents need

    page = MetricsPage(settings.host)
    serve(page, *settings.metrics)
    return page


def stop_on_signals(stop: threading.Event) -> None:
    def on_signal(signum: int, _: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)


def status(argv: Sequence[str]) -> int:
    """Exit code 1, with the reason, where there is nothing to read."""
    reach = read_show("status", argv)
    hosts: dict[str, str] = {}
    more: show.Item = {}
    if reach.hub is not None:
        client = reach.client()
        items, nodes = client.gpus(), client.nodes()
        hosts = host_names(nodes)
        held_hosts = {node["host"]: node.get("holds", []) for node in nodes}
        more["nodes"] = nodes
    else:
        items, more = _status_here(reach)
        held_hosts = {this_host(): (*hub_holds(), *holds(visible_hold_files(reach.data)))}
    held_hosts = {host: [*why] for host, why in held_hosts.items() if why}
    print(show.as_json(items, holds=held_hosts, **more) if reach.json
          else "\n".join([*show.held_lines(held_hosts), show.gpu_table(items, hosts),
                          *show.notes(more)]))
    return ExitCode.OK if more.get("reader", OK)["state"] == "ok" else ExitCode.FAILED


def _status_here(reach: ConnectionSettings) -> tuple[list[show.Item], show.Item]:
    agent_cost, disk = AgentCostMeter(reach.data), {"disk": disk_trouble(reach.data)}
    try:
        reading = read_once(reach, readings=2, others_within_s=OTHERS_WITHIN_S)[0]
    except NoReadingError as why:
        if not reach.json:
            raise
        return [], {**show.nothing_here(why.state, str(why), agent_cost.take()), **disk}
    return show.gpu_items(reading, this_host()), {**show.here(reading, agent_cost.take()), **disk}


def tasks(argv: Sequence[str]) -> int:
    reach = read_show("tasks", argv)
    hosts: dict[str, str] = {}
    more: show.Item = {}
    if reach.hub is not None:
        client = reach.client()
        items, hosts = client.tasks(), host_names(client.nodes())
        gpus = [] if reach.json else client.gpus(metrics="util_pct")
    else:
        items, gpus, more["unseen"], more["detail"] = _tasks_here(reach)
    # A pipe gets whole lines, a person's terminal as much as it has room for.
    width = os.get_terminal_size().columns if sys.stdout.isatty() else None
    places = {gpu["uuid"]: str(gpu.get("place", gpu["index"])) for gpu in gpus}
    print(show.as_json(items, **more) if reach.json
          else more.get("unseen") or "\n".join([
              show.task_table(items, hosts, places, width or None), *show.notes({"reader": more})]))
    return ExitCode.OK


def _tasks_here(reach: ConnectionSettings
                ) -> tuple[list[show.Item], list[show.Item], str, str]:
    """Return tasks, GPUs, why no task can be named: by the driver's ids they would be somebody
    else's; and what is wrong with single boards or drivers, whose tasks may be missing."""
    reading, processes = read_once(reach, readings=2, lists=2,
                                   others_within_s=OTHERS_WITHIN_S)
    if unseen := foreign_pids(backend_named(reach.backend), reach.ceiling):
        return [], [], unseen, reading.detail
    table = TaskTable(boot_id(), names=WorkloadNameCache(), clients=LocalMpsDaemons().clients,
                      suspended=lambda: suspended_here(reach.data))
    return (show.task_items(table.describe(processes), this_host()),
            show.gpu_items(reading, this_host()), "", reading.detail)


def host_names(nodes: Sequence[show.Item]) -> dict[str, str]:
    return {str(node["id"]): str(node["host"]) for node in nodes}


class _KeyValueFormatter(logging.Formatter):
    """Format as 2026-11-20T12:00:00.000Z warning no_connection hub=… why='…'"""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = f"{stamp}.{int(record.msecs):03d}Z {record.levelname.lower()} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_KeyValueFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
