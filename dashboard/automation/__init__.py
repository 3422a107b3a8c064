"""Actions without a person: escalation ladders, brakes, maintenance."""
