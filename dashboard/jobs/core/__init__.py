"""What jobs and teams are. Pure."""
