"""The simulated world: real boards' profiles, jobs, their load, and what boards make of it."""
