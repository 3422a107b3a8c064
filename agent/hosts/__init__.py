"""Host metrics: processor, memory, disks, network, and what each task uses of them."""
