"""Events that the NVIDIA driver reports: Xids and memory errors, from an event set that a thread
waits on. ctypes releases the interpreter meanwhile, so the readings go on (pitfalls.md A.1).

Nothing that goes wrong here says anything about a GPU: NVIDIA's device plugin took every error of
the wait for the death of all GPUs, and looped on it without a pause (A.2).
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from ...readings import BackendEvent

SINGLE, DOUBLE, XID = (pynvml.nvmlEventTypeSingleBitEccError, pynvml.nvmlEventTypeDoubleBitEccError,
                       pynvml.nvmlEventTypeXidCriticalError)
WANTED = SINGLE | DOUBLE | XID
KINDS = {SINGLE: "ecc_corrected", DOUBLE: "ecc_uncorrected", XID: "xid"}
NO_EVENTS = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
NO_INSTANCE = 0xFFFF_FFFF
# Also how late the end is noticed. A watcher that lives for long is woken seldom; it has
# END_WITHIN_S to leave, see agent/reader.
WAIT_MS, WAIT_MAX_MS = 125, 1_500
REGISTER_EVERY_S = 60.0  # a GPU that could not be registered may be back
PAUSE_S = (1.0, 60.0)

Tell = Callable[[BackendEvent], None]


class NvmlEventWatcher:
    """`handles` by UUID, of physical GPUs only: an event of an instance names its board."""

    def __init__(self, handles: Mapping[str, Any], tell: Tell) -> None:
        self._handles = dict(handles)
        self._uuids = {_address(handle): uuid for uuid, handle in self._handles.items()}
        self._tell = tell
        self._missing: dict[str, Any] = {}
        self._reported: set[str] = set()
        self._wait_ms = WAIT_MS
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """Close; False: the driver does not let the thread go, and must not be shut down under
        it."""
        self._closing.set()
        self._thread.join(WAIT_MAX_MS / 1_000 + 0.5)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause_s = PAUSE_S[0]
        while not self._closing.is_set():
            events = None
            try:
                events = self._new_event_set()
                while not self._closing.is_set():
                    self._wait(events)
                    pause_s = PAUSE_S[0]
            except pynvml.NVMLError as error:
                self._say(f"cannot wait for events: {error}; trying again after a pause")
                if error.value in (*NO_EVENTS, pynvml.NVML_ERROR_UNINITIALIZED):
                    return
                self._closing.wait(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S[1])
            except OSError:  # the receiver is gone; the readings find out as well
                return
            finally:
                _free(events)

    def _new_event_set(self) -> Any:
        events = pynvml.nvmlEventSetCreate()
        self._missing = {}
        for uuid, handle in self._handles.items():
            code = self._register(uuid, handle, events)
            if code == pynvml.NVML_ERROR_UNKNOWN:
                # "the event set should be freed" (nvml.h); the other GPUs get a fresh one
                del self._handles[uuid]
                _free(events)
                return self._new_event_set()
            if code not in (0, *NO_EVENTS):
                self._missing[uuid] = handle
        self._register_at = time.monotonic() + REGISTER_EVERY_S
        return events

    def _register(self, uuid: str, handle: Any, events: Any) -> int:
        try:
            kinds = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & WANTED
            if kinds:
                pynvml.nvmlDeviceRegisterEvents(handle, kinds, events)
        except pynvml.NVMLError as error:
            if error.value in (pynvml.NVML_ERROR_UNINITIALIZED,
                               pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
                raise
            self._say(f"{uuid}: no events: {error}")
            return int(error.value)
        return 0

    def _wait(self, events: Any) -> None:
        event = pynvml.c_nvmlEventData_t()
        # Not by pynvml's own wait, which makes an exception of every timeout: it is the rule.
        call = pynvml._nvmlGetFunctionPointer("nvmlEventSetWait_v2")
        code = call(events, ctypes.byref(event), ctypes.c_uint(self._wait_ms))
        if code == pynvml.NVML_ERROR_TIMEOUT:
            self._wait_ms = min(self._wait_ms * 5 // 4, WAIT_MAX_MS)
            self._register_missing(events)
            return
        pynvml._nvmlCheckReturn(code)
        self._happened(event)

    def _register_missing(self, events: Any) -> None:
        if not self._missing or time.monotonic() < self._register_at:
            return
        self._register_at = time.monotonic() + REGISTER_EVERY_S
        for uuid, handle in list(self._missing.items()):
            if self._register(uuid, handle, events) == 0:
                del self._missing[uuid]

    def _happened(self, event: Any) -> None:
        kind = KINDS.get(event.eventType)
        if kind is None:
            return
        numbers = {"xid": float(event.eventData)} if kind == "xid" else {}
        for name, number in (("gpu_instance", event.gpuInstanceId),
                             ("compute_instance", event.computeInstanceId)):
            if number != NO_INSTANCE:
                numbers[name] = float(number)
        self._tell(BackendEvent(kind, time.time(), self._uuid(event.device), numbers=numbers))

    def _uuid(self, handle: Any) -> str | None:
        """Return the UUID without asking where it is known: a GPU that has fallen off the bus
        cannot name itself."""
        uuid = self._uuids.get(_address(handle))
        if uuid is not None:
            return uuid
        try:
            return str(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError:
            return None

    def _say(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._reported.add(sentence)
            print(sentence, file=sys.stderr)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _free(events: Any) -> None:
    if events is not None:
        try:
            pynvml.nvmlEventSetFree(events)
        except pynvml.NVMLError as error:
            print(f"nvmlEventSetFree: {error}", file=sys.stderr)
