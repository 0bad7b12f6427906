"""Benchmarks: each module prints one Markdown section; ``python -m benchmarks`` runs them all."""

import os

# Simulated homes, or homes measured for themselves: nothing here is charged to the ledger of whoever runs it.
os.environ.setdefault("SHOAL_LEDGER", "folder")
