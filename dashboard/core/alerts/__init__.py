"""Rules that are watched over the fleet. Pure: what is measured and the time are arguments."""
