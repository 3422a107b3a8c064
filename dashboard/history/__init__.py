"""Seconds, minutes and hours of every GPU and task, in files that pandas opens."""
