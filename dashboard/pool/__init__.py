"""Pool: who gets which GPUs before a task runs. Claims, leases, the queue."""
