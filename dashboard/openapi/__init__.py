"""The description of the REST interface."""
