"""Views other hubs: their nodes and GPUs beside our own, read with a viewer's token."""
