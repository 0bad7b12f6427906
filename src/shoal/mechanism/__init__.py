"""Releasable things: mechanisms, codebooks, their certificates and files."""
