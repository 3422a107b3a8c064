"""Table of faults: where and how each is caused, and the one rule that notifies of it."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.faults.matrix.machines import LINKS, DriverNode, SimulatedNodes
from tests.faults.toxic import Toxics
from tests.unit.agent.backends.test_nvml_life import CALLS

# A node of its own in the simulating process; a board of the one node on the fake driver; a board
# that is split there; an agent with its own fake driver; and faults of a whole hub.
Where = Literal["simulated", "training", "board", "split", "driver", "agent", "hub"]
ON = {"simulated": "simulated boards", "training": "simulated boards", "board": "fake driver",
      "split": "fake driver", "driver": "fake driver", "agent": "agent", "hub": "hub"}
PACE_S = 15.0  # of what grows: slow metrics are read so often
STEP_S = 30
BLACK_HOLE = Toxics(most_bytes=1, most_delay_s=1e9)
REFUSED = Toxics(cut_after_s=(0.0, 0.0))


@dataclass(frozen=True)
class Place:
    """`index`: of the GPU; 0 for a fault of a whole node."""

    machine: Any
    name: str
    index: int = 0


Change = Callable[[Place], None]


def nothing(place: Place) -> None:
    """Do nothing: the fault ends by itself."""


@dataclass(frozen=True)
class Fault:
    """`rule`: of its one notification; "": no notification. `pace`: changes it while it lasts, by
    the seconds since it began."""

    name: str
    where: Where
    begin: Change
    end: Change
    rule: str
    lasts_s: int = 120
    is_quick: bool = True
    pace: Callable[[Place, float], None] | None = None


# -- on simulated boards


def inject(*gpus: dict[str, Any], **node: Any) -> Change:
    def begin(place: Place) -> None:
        nodes: SimulatedNodes = place.machine
        for index, values in enumerate(gpus):
            nodes.tell_gpu(place.name, index, **values)
        if node:
            nodes.tell_node(place.name, **node)

    return begin


def forget(place: Place) -> None:
    place.machine.forget(place.name)


def grow(key: str, per_s: float) -> Callable[[Place, float], None]:
    return lambda place, after_s: place.machine.tell_gpu(place.name, 0, **{
        key: int(per_s * after_s)})


def simulated(name: str, begin: Change, rule: str, lasts_s: int = 120, **more: Any) -> Fault:
    return Fault(name, more.pop("where", "simulated"), begin, forget, rule, lasts_s, **more)


def slow(name: str, begin: Change, rule: str, lasts_s: int, **more: Any) -> Fault:
    """Fault whose rule itself waits for minutes."""
    return simulated(name, begin, rule, lasts_s, is_quick=False, **more)


LOST = {"lost": True}
HOT = {"temp_margin_c": 0, "throttle": "hardware thermal slowdown", "slowed_hard_thermal_pct": 60}
SIMULATED = (
    simulated("a GPU falls off the bus (Xid 79)", inject(LOST), "gpu-lost"),
    simulated("two GPUs of a node fall off the bus", inject(LOST, LOST), "gpus-lost"),
    simulated("a GPU of a training over four falls off the bus", inject(LOST), "gpu-lost",
              where="training"),
    simulated("the reader hangs inside the driver", inject(reader="hang"), "driver-unresponsive"),
    simulated("no driver is loaded any more", inject(driver="gone"), "driver-gone", 90),
    simulated("the driver is loaded again within 20 s", inject(driver="gone"), "", 20),
    simulated("a double-bit error (Xid 48), and a row that waits for a reset",
              inject({"xid": 48, "ecc_uncorrected": 3, "rows_pending": True}), "ecc-uncorrected"),
    simulated("a row waits for a reset, not yet for an hour (Xid 63)",
              inject({"xid": 63, "rows_pending": True}), ""),
    simulated("a row cannot be remapped (Xid 64)", inject({"xid": 64, "rows_failed": True}),
              "rows-failed"),
    simulated("contained memory errors (Xid 94)", inject({"xid": 94}), "xid-of-memory"),
    simulated("uncontained memory errors (Xid 95), and the driver says what to do (Xid 154)",
              inject({"xid": [95, 154], "recovery_action": 2}), "xid-of-memory",
              is_quick=False),  # on an overloaded machine 154 was counted by itself, once
    simulated("the firmware does not answer (Xid 119)", inject({"xid": 119}), "xid-of-driver"),
    simulated("an error of an NVLink (Xid 74)", inject({"xid": 74}), "xid-of-link"),
    simulated("all NVLinks of a GPU are down (Xid 74)", inject({"xid": 74, "nvlinks_up": 0}),
              "nvlink-lost"),
    simulated("a fault of the board (Xid 62)", inject({"xid": 62}), "xid-of-board"),
    simulated("three faults of programs (Xid 13, 31, 43)", inject({"xid": [13, 31, 43]}),
              "xid-of-task"),
    simulated("the driver advises to reboot the node", inject({"recovery_action": 2}),
              "recovery-advised"),
    simulated("a hardware thermal slowdown", inject(HOT), "temp-critical", 150),
    slow("a GPU of a training slows down by heat", inject(HOT), "temp-critical", 900,
         where="training"),
    slow("a board 3 °C below its limit", inject({"temp_margin_c": 3}), "temp-high", 240),
    slow("hot memory", inject({"mem_temp_c": 97}), "memory-hot", 240),
    slow("thermal throttling for a tenth of the time", inject({"slowed_soft_thermal_pct": 20}),
         "slowed-by-heat", 900),
    simulated("the chassis pulls the power brake",
              inject({"throttle": "hardware power brake", "slowed_brake_pct": 30}), "power-brake"),
    simulated("the power cap alone", inject({"throttle": "software power cap"}), "", 180),
    simulated("errors that the memory corrects", inject({"ecc_corrected": 3}), ""),
    slow("replays on the PCIe link", inject({"pcie_replays": 0}), "pcie-replays", 1_200,
         pace=grow("pcie_replays", 1.0)),
    slow("errors on an NVLink", inject({"nvlink_errors": 0}), "nvlink-errors", 900,
         pace=grow("nvlink_errors", 1.0)),
    slow("a PCIe link with 8 of 16 lanes, under load", inject({"pcie_width": 8, "util_pct": 90}),
         "pcie-narrow", 1_200),
    slow("memory that no process holds", inject({"mem_unseen_bytes": 40 * 2**30}), "held-unseen",
         900),
)

# -- on the fake driver


def board(name: str, begin: Change, rule: str, lasts_s: int = 120, **more: Any) -> Fault:
    return Fault(name, more.pop("where", "board"), begin, mend_board, rule, lasts_s, **more)


def set_board(xid: int = 0, **values: Any) -> Change:
    def begin(place: Place) -> None:
        node: DriverNode = place.machine
        node.set(place.index, **values)
        if xid:
            node.nvml.xid(node.gpus[place.index], xid)

    return begin


def lose_board(place: Place) -> None:
    place.machine.gpus[place.index].lose()
    place.machine.nvml.xid(place.machine.gpus[place.index], 79)


def fail_board(place: Place) -> None:
    for call in CALLS:
        place.machine.gpus[place.index].error(call, 999)
    place.machine.nvml.save()


def mend_board(place: Place) -> None:
    place.machine.mend(place.index)


def destroy_instance(place: Place) -> None:
    place.machine.gpus[place.index].instances[-1]["uuid"] = None
    place.machine.nvml.save()


def hang_driver(place: Place) -> None:
    nvml = place.machine.nvml
    nvml.lines += ["hang nvmlDeviceGetUtilizationRates", "hang nvmlInitWithFlags"]
    nvml.save()


def answer_again(place: Place) -> None:
    nvml = place.machine.nvml
    nvml.lines = [line for line in nvml.lines if not line.startswith("hang")]
    nvml.save()


def unload(place: Place) -> None:
    place.machine.nvml.unload()


def load(place: Place) -> None:
    place.machine.nvml.load()


NO_LINKS = {f"nvlink_{link}": 0 for link in range(LINKS)}
DRIVERS = (
    board("a GPU falls off the bus (Xid 79)", lose_board, "gpu-lost"),
    board("a GPU fails every driver call", fail_board, "gpu-error"),
    board("a double-bit error (Xid 48), and a row that waits for a reset",
          set_board(48, ecc_uncorrected_volatile=2, rows_pending=1), "ecc-uncorrected"),
    board("errors that the memory corrects", set_board(ecc_corrected_volatile=2), ""),
    board("a page waits for its retirement, not yet for an hour", set_board(retired_pending=1), ""),
    board("a row cannot be remapped (Xid 64)", set_board(64, rows_failure=1), "rows-failed"),
    board("all NVLinks of a GPU are down (Xid 74)", set_board(74, **NO_LINKS), "nvlink-lost"),
    board("the driver advises to reset the GPU", set_board(recovery=1), "recovery-advised"),
    board("a hardware thermal slowdown", set_board(temp=91, throttle=0x40), "temp-critical", 150),
    board("a fan stops on a warm board", set_board(fan=0, temp=75), "fan-stopped"),
    board("contained memory errors (Xid 94)", set_board(94), "xid-of-memory"),
    board("the firmware does not answer (Xid 119)", set_board(119), "xid-of-driver"),
    board("a fault of the board (Xid 62)", set_board(62), "xid-of-board"),
    board("a GPU that is split into 3 MIG instances falls off the bus (Xid 79)", lose_board,
          "gpu-lost", where="split"),
    board("a MIG instance is destroyed", destroy_instance, "", where="split"),
    Fault("every call hangs inside the driver", "driver", hang_driver, answer_again,
          "driver-unresponsive"),
    Fault("no driver is loaded any more", "driver", unload, load, "driver-gone", 90),
    Fault("the driver is loaded again within 20 s", "driver", unload, load, "", 20),
)

# -- agents, their network and their clock


def send(number: signal.Signals) -> Change:
    return lambda place: place.machine.program.signal(number)


def start(place: Place) -> None:
    place.machine.program.start()


def change_network(toxics: Toxics) -> Change:
    return lambda place: place.machine.proxy.change(toxics)


def set_clock(seconds: int) -> Change:
    return lambda place: place.machine.clock.set(seconds)


def agent(name: str, begin: Change, end: Change, rule: str, lasts_s: int = 120) -> Fault:
    return Fault(name, "agent", begin, end, rule, lasts_s)


AGENTS = (
    agent("an agent is stopped (SIGSTOP)", send(signal.SIGSTOP), send(signal.SIGCONT),
          "node-silent"),
    agent("an agent is killed (SIGKILL)", send(signal.SIGKILL), start, "node-silent"),
    agent("an agent is killed and back within 10 s", send(signal.SIGKILL), start, "", 10),
    agent("an agent is upgraded in 40 s (SIGTERM)", send(signal.SIGTERM), start, "", 40),
    agent("the network refuses every connection", change_network(REFUSED),
          change_network(Toxics()), "node-silent"),
    agent("the network swallows every packet", change_network(BLACK_HOLE),
          change_network(Toxics()), "node-silent"),
    agent("a node's clock is set forward by 30 s", set_clock(STEP_S), set_clock(0), "clock-skew"),
    agent("a node's clock is set back by 30 s", set_clock(-STEP_S), set_clock(0), "clock-skew"),
    agent("the disk of an agent is full", lambda place: place.machine.fill_disk(),
          lambda place: place.machine.free_disk(), "agent-disk"),
)

OF_NODES = (*SIMULATED, *DRIVERS, *AGENTS)
