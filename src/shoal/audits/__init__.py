"""Before and after a release: the audit of what leaves, and the card that describes it."""
