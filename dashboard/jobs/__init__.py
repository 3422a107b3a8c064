"""Jobs and launches as people think of them, live and finished, and the teams of their owners."""
