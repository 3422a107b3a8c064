"""Who gets which GPUs before a task runs: claims, leases, the queue."""
