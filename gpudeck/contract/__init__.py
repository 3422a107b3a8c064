"""Contract of the programs: the messages that they exchange, and what these carry."""
