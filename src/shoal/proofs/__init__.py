"""Proofs: rigorous enclosures of δ(ε) by ball arithmetic, from the parameters as stored."""
