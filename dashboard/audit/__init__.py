"""Every attempt, recorded before it acts, in a hash chain that can be verified."""
