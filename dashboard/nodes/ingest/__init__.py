"""A process of its own for the sockets of agents that have proved who they are."""
