"""One exception root: every error that credent raises on purpose is a `CredentError` and says what to write instead."""

from collections.abc import Mapping, Sequence
from typing import Any


class CredentError(Exception):
    """Root of the errors that credent raises on purpose."""


class InputError(CredentError, ValueError):
    """An argument, a batch or a file's content cannot mean what was asked of it."""


class CheckpointError(CredentError):
    """A checkpoint or posterior file cannot be read, or does not belong to this run."""


class NonFiniteError(CredentError, ArithmeticError):
    """Training met a NaN or an infinity; the message names the step and the parameter."""

    draws: Sequence[Mapping[str, Any]] = ()
    """What `fit(keep=...)` had kept until then: `cr.families.Draws(error.draws)` is a posterior of them."""


class ConvergenceWarning(UserWarning):
    """A posterior is not what it claims to be: scales that training cannot bring home, or chains that are too short."""


class BudgetError(CredentError, MemoryError):
    """The result would need more bytes than were allowed; the message says how many, and how to need fewer."""
