"""What a run aims at: :mod:`shoal.mechanisms.target`, under the name by which the stages know it."""

from shoal.mechanisms.target import INTERRUPTED, interruptible, joined, meet

__all__ = ["INTERRUPTED", "interruptible", "joined", "meet"]
