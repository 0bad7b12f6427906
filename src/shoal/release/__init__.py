"""Operating a mechanism: the record of what leaves, the audit of it, and the card that describes it."""
