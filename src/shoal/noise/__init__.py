"""Noise for real releases: exact draws, exact arithmetic, a common grid, and a bound on what finite precision costs."""
