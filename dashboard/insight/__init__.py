"""What will happen, and what to do: leaks, hangs, jobs unlike themselves, forecasts, estimates,
advice."""
