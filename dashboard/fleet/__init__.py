"""The live picture: nodes, GPUs, tasks, events, filters, and what each scope may see."""
