"""Bounds of a text or a number of the contract; beyond them a message is refused, never cut."""

from typing import Annotated

from msgspec import Meta

Word = Annotated[str, Meta(min_length=1, max_length=128)]
TypeName = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_]{0,31}\Z")]  # of a message
# More are in a field of their own: a hub of before refuses a node with a longer list.
FIRST_ACTIONS = 32
Actions = Annotated[tuple[Word, ...], Meta(max_length=FIRST_ACTIONS)]
Text = Annotated[str, Meta(max_length=1_024)]
CommandLine = Annotated[str, Meta(max_length=4_096)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
PID_MAX = 2**22  # PID_MAX_LIMIT of the kernel: no process has a higher number
Pid = Annotated[int, Meta(ge=0, le=2**31 - 1)]
# Bounds also shut out NaN and the infinities: no comparison with NaN is true.
Seconds = Annotated[float, Meta(ge=-1e12, le=1e12)]
Amount = Annotated[float, Meta(ge=0, le=1e18)]
Finite = Annotated[float, Meta(ge=-1e18, le=1e18)]
Nonce = Annotated[bytes, Meta(min_length=32, max_length=32)]  # random, used once
PublicKey = Annotated[bytes, Meta(min_length=32, max_length=32)]  # Ed25519
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]
