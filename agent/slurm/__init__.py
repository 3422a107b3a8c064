"""Slurm, by its own programs: jobs, nodes and what this agent's account may ask of it."""
