"""Messages between a notebook and the agent that it started, over the agent's stdin and
stdout, as length-prefixed MessagePack.

    notebook                             `gpudeck agent --pipe`
                             <- Seen      once a second, and why there is nothing to see
      Mark ->
                             <- Marked    a reading taken at once, outside the cadence
      Look ->                             what would this action hit?
                             <- Shown, or Sorry
      Order ->                            carry out what was shown, once
                             <- Ordered, or Sorry; then Told at each step, until it has ended

The agent ends when its stdin does. It serves one notebook of one user, for their own tasks.
"""

import struct
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gpudeck.contract.action_table import TaskAction
from gpudeck.contract.action_views import CommandView, PreviewView
from gpudeck.contract.wire import ReaderState

MAX_MESSAGE_BYTES = 16_000_000
_LENGTH = struct.Struct("<I")

Item = dict[str, Any]
T = TypeVar("T")


class PipeSnapshot(Struct, frozen=True, tag="seen"):
    """GPUs and tasks in the shape of the REST interface. A task has two more fields: `mine`, it
    runs under the notebook's own uid; and `kernel`, it is the notebook's kernel, or descends from
    it."""

    at: float
    reader: ReaderState
    detail: str
    host: str
    driver_version: str | None = None
    gpus: tuple[Item, ...] = ()
    tasks: tuple[Item, ...] | None = None  # None: not read this time
    ram_total_bytes: int | None = None
    ram_available_bytes: int | None = None
    holds: tuple[str, ...] = ()
    is_simulated: bool = False
    # Why the driver's process ids name no process here, and no task is ours; "": they do.
    unseen: str = ""


class PipeMarkReply(Struct, frozen=True, tag="marked"):
    mark_id: int
    at: float
    # By GPU. None: no such counter, or the board did not answer.
    energy_j: dict[str, float | None] = {}
    # By GPU and pid, of the kernel and what descends from it. None: it is there, and how much it
    # holds is not known.
    held: dict[str, dict[int, float | None]] = {}
    is_answered: bool = True  # no: the driver did not answer; all else is empty


class PipePreviewReply(Struct, frozen=True, tag="shown"):
    ask_id: str
    preview: PreviewView


class PipeOrderReply(Struct, frozen=True, tag="ordered"):
    ask_id: str
    commands: tuple[CommandView, ...]


class PipeCommandUpdate(Struct, frozen=True, tag="told"):
    ask_id: str
    command: CommandView


class PipeFailure(Struct, frozen=True, tag="sorry"):
    """A request that failed, and why."""

    ask_id: str
    sentence: str


class PipeMarkRequest(Struct, frozen=True, tag="mark"):
    mark_id: int


class PipePreviewRequest(Struct, frozen=True, tag="look"):
    ask_id: str
    action: TaskAction
    task_id: str
    params: Item = {}


class PipeOrderRequest(Struct, frozen=True, tag="order"):
    ask_id: str  # of the PipePreviewRequest
    reason: str


FromAgent = (PipeSnapshot | PipeMarkReply | PipePreviewReply | PipeOrderReply | PipeCommandUpdate
             | PipeFailure)
FromNotebook = PipeMarkRequest | PipePreviewRequest | PipeOrderRequest

_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_notebook: msgspec.msgpack.Decoder[FromNotebook] = msgspec.msgpack.Decoder(FromNotebook)


def packed(message: FromAgent | FromNotebook) -> bytes:
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class PipeDecoder:
    """Decoder that joins the pieces that a pipe delivers into whole messages. Raises
    msgspec.MsgspecError for an invalid message."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def from_agent(self, data: bytes) -> Iterator[FromAgent]:
        return self._read(data, _from_agent)

    def from_notebook(self, data: bytes) -> Iterator[FromNotebook]:
        return self._read(data, _from_notebook)

    def _read(self, data: bytes, decoder: msgspec.msgpack.Decoder[T]) -> Iterator[T]:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MAX_MESSAGE_BYTES:
                raise msgspec.DecodeError(f"a message of {size} bytes")
            if len(self._buffer) < _LENGTH.size + size:
                return
            body = bytes(self._buffer[_LENGTH.size : _LENGTH.size + size])
            del self._buffer[: _LENGTH.size + size]
            yield decoder.decode(body)
