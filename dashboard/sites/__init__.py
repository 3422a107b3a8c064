"""Views of other hubs: their nodes and GPUs next to our own, read with a viewer's token."""
