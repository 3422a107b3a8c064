"""This machine: child processes, what a process costs, a disk's errors."""
