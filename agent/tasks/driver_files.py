"""What of a driver processes have open; apart from who looks for it, which takes long to load."""

from typing import Protocol


class DriverFiles(Protocol):
    DEVICE_FILES: str  # how their paths begin
    LIBRARY: bytes  # part of its file name
