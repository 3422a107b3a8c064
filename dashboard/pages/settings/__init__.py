"""The Settings page: what admins manage, and everybody's sessions and account."""
