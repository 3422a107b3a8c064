"""Process of its own that serves the sockets of agents which have proved who they are."""
