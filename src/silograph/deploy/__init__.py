"""Runs across organisations: what they agree on, one organisation's part, the server."""
