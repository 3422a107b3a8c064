"""How a process on a simulated node says whose it is in the story of the simulation."""

USER_ENV = "GPUDECK_SIMULATED_USER"
