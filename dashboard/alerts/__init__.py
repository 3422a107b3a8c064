"""Rules and alerts: what fires, silences, modes, and rehearsal on the past."""
