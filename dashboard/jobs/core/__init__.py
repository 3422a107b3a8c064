"""Model of jobs and teams. Pure."""
