"""NVIDIA's driver library, with its traps."""
