"""Environment variable by which a process on a simulated node names its simulated user."""

USER_ENV = "GPUDECK_SIMULATED_USER"
