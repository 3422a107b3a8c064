"""The only network: handshake, protocol, the outbox of unacknowledged messages, the node's
identity."""
