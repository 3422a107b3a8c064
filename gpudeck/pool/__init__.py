"""Pool: who gets which GPUs, when, and for how long."""
