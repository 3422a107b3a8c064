"""What acts without a person: escalation ladders, brakes, maintenance."""
