"""Forecasts and recommendations: leaks, hangs, jobs unlike their own past, forecasts, estimates,
advice."""
