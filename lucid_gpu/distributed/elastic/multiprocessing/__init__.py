"""Processes that the launcher starts: how one says what it failed of."""
