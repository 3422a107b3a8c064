"""Rules and alerts as pure functions: signals, windows, state machine, targets."""
