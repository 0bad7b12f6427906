"""Operating a mechanism: what leaves, what it cost, and whether the claim holds."""
