"""Releasing answers: what was spent is recorded before anything is shown."""
