"""The audit log: attempts are recorded before they act, in a hash chain that can be verified."""
