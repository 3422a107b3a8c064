"""Client of a hub's REST interface."""
