"""The record of what is released: charged before it is shown, within budgets, hash-chained."""
