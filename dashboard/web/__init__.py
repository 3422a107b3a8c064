"""HTTP and sockets: bounds, TLS, answers, idempotency, compression."""
