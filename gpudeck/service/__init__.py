"""`gpudeck service`: hub and agent as services of systemd."""
