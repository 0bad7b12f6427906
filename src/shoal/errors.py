"""What can go wrong, and what it means for the caller.

    ShoalError (a ValueError)
    ├── InputError            an argument is not what was expected; the text names it and says what to do
    ├── CertificationError    a number could not be bounded tightly enough to be trusted
    └── UnreachableError      the guarantee asked for cannot be met

No message carries data: an exception text can end up in a log, and in a privacy library a log is a release.
Messages name arguments, shapes, labels of the *caller's own* arguments and limits, never values of means,
covariances or readings.
"""

from __future__ import annotations


class ShoalError(ValueError):
    """Base of every error that shoal raises on purpose."""


class InputError(ShoalError):
    """An argument is not what was expected."""


class CertificationError(ShoalError):
    """A privacy figure could not be bounded tightly enough to be trusted."""


class UnreachableError(ShoalError):
    """The guarantee asked for cannot be met."""
