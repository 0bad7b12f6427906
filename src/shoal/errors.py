"""Errors, and what each means for the caller.

    ShoalError
    ├── InputError            an argument is not what was expected; the text names it and says what to do
    ├── CertificationError    a number could not be bounded tightly enough to be trusted
    ├── UnreachableError      the guarantee asked for cannot be met
    ├── BudgetError           a release would spend more than is left; carries what remains
    ├── LedgerError           the ledger cannot be reached, written or trusted
    ├── StorageError          the disk is full; what is finished is kept
    └── WorkerError           workers do not start, or the cluster is gone; what is finished is kept

All but the last two are also ValueErrors. No message carries data, since an exception text can end up in a log:
messages name arguments, shapes, labels of the caller's own arguments and limits.
"""

from __future__ import annotations


class ShoalError(Exception):
    """Base of every error that shoal raises on purpose.

    ``argument`` is the name of an argument where the message begins with it: the command shows its own option there.
    """

    def __init__(self, message: str = "", *, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument


class InputError(ShoalError, ValueError):
    """An argument is not what was expected."""


class CertificationError(ShoalError, ValueError):
    """A privacy figure could not be bounded tightly enough to be trusted."""


class UnreachableError(ShoalError, ValueError):
    """The guarantee asked for cannot be met."""


class BudgetError(ShoalError, ValueError):
    """A release would spend more than its budget allows; nothing was released and nothing was charged.

    ``remaining`` is the δ still unspent at ``epsilon`` under the budget named ``limit``, rounded down. That a label's
    budget is exhausted depends on the label: a refusal is for the data owner, and passed on it can tell an observer
    which label was meant.
    """

    def __init__(self, message: str, *, remaining: float = 0.0, epsilon: float = 0.0, limit: str = "") -> None:
        super().__init__(message)
        self.remaining = remaining
        self.epsilon = epsilon
        self.limit = limit


class LedgerError(ShoalError, ValueError):
    """The ledger cannot be reached, written or trusted.

    ``reason`` is a word for programs: ``"absent"`` (there is no ledger), ``"busy"`` (another writer holds it),
    ``"stale"`` (it changed since it was read), ``"full"``, ``"read-only"``, ``"unreachable"``, ``"damaged"``, or empty.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class StorageError(ShoalError):
    """The disk is full. What is finished is kept: make room and run again."""


class WorkerError(ShoalError):
    """Workers do not start, or the cluster is gone. What is finished is kept: run again."""
