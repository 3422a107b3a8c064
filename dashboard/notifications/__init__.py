"""Notifications to receivers and owners: grouping, retry, webhook, mail."""
