"""Files of a driver that processes have open; apart from the code that looks for these processes,
which takes long to load."""

from typing import Protocol


class DriverFiles(Protocol):
    DEVICE_FILES: str  # how their paths begin
    LIBRARY: bytes  # part of its file name
