"""Devices and limits of PyTorch and TensorFlow under a lease. Neither is here: stand-ins
note what is called."""

import functools
import sys
from inspect import signature
from pathlib import Path

import pytest

import widget
from gpudeck.contract.pool_messages import Leased, LeasedGpu
from gpudeck.pool.claim import HeldLease, claim, claim_request

GIB = 2**30
TORCH = """
noted = []
def device(kind, index): return f"{kind}:{index}"
class cuda:
    def set_per_process_memory_fraction(part, device): noted.append((part, device))
"""
TENSORFLOW = """
noted = []
class config:
    def list_physical_devices(kind): return [kind]
    def LogicalDeviceConfiguration(memory_limit): return memory_limit
    def set_logical_device_configuration(gpu, limits): noted.append((gpu, limits))
    class experimental:
        def set_memory_growth(gpu, is_on): noted.append((gpu, is_on))
"""


def held_lease(share_milli: int, mem_bytes: int | None, board_bytes: float | None) -> HeldLease:
    gpu = LeasedGpu("GPU-a", "H100", 0, mem_bytes=board_bytes)
    return HeldLease("l", (gpu,), {}, Leased("l", "n1", (gpu,), 0.0, share_milli, mem_bytes, 30.0))


@pytest.mark.parametrize(("share_milli", "mem_bytes", "board_bytes", "part", "mib"), [
    (1_000, None, 80 * GIB, None, None), (300, None, 80 * GIB, 0.3, 24_576),
    (300, 20 * GIB, 80 * GIB, 0.25, 20_480), (300, None, None, 0.3, None)])
def test_its_devices_and_the_limit_of_a_part(
        share_milli: int, mem_bytes: int | None, board_bytes: float | None, part: float | None,
        mib: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("torch", TORCH), ("tensorflow", TENSORFLOW)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    lease = held_lease(share_milli, mem_bytes, board_bytes)
    assert lease.torch() == ["cuda:0"]
    assert sys.modules["torch"].noted == ([] if part is None else [(part, "cuda:0")])
    assert lease.tensorflow() == ["GPU"]
    assert sys.modules["tensorflow"].noted == [("GPU", True if mib is None else [mib])]
    for name in ("torch", "tensorflow"):
        monkeypatch.delitem(sys.modules, name)


def test_a_program_says_how_its_gpus_may_be_taken_back() -> None:
    ask = functools.partial(claim_request, 1, "", None, None, None, None, None, cpus=None, ram=None)
    for preemptible, suspendable in ((False, False), (True, False), (True, True)):
        request = ask(preemptible=preemptible, suspendable=suspendable)
        assert (request.is_preemptible, request.is_suspendable) == (preemptible, suspendable)
    with (pytest.raises(ValueError, match="add preemptible=True"), claim(suspendable=True)):
        pass


def test_a_notebook_says_it_in_the_same_words() -> None:
    programs, notebooks = (signature(function).parameters for function in (claim, widget.claim))
    assert [*programs] == [*notebooks]
    with pytest.raises(ValueError, match="add preemptible=True"):
        widget.claim(suspendable=True)
