"""`gpudeck top`: GPUs, jobs, host and queue, live in a terminal, of this machine or of a fleet."""
