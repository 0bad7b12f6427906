"""Codebooks: pure ε for constants, by releasing one of finitely many curves."""
