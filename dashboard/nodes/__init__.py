"""Agents' socket: enrolment, admission, recording what they send, backfills."""
