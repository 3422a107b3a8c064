"""The child process that reads a backend, and the watchdog that replaces it when a driver hangs."""
