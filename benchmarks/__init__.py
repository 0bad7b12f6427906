"""Benchmarks: each module prints one Markdown section; ``python -m benchmarks`` runs them all."""
