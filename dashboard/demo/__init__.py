"""A hub with a simulated fleet and a made-up past, and `gpudeck up`."""
