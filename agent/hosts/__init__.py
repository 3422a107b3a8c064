"""The host beside its GPUs: processor, memory, disks, network, and what each task takes of them."""
