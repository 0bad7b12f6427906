"""Crowds: who is averaged with whom, and what a row of averages may tell."""
