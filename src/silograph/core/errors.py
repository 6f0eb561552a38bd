"""Errors that say where, what was expected, what was found, and what to do.

Only an error's class and `code` may ever leave a silo; the text may quote data and stays where it was raised.
"""

from __future__ import annotations


class SilographError(Exception):
    """Base of everything silograph raises on purpose. `exit_code` is what the command line returns."""

    code = "failure"
    exit_code = 1

    def __init__(self, where: str, expected: str, found: str, todo: str = "") -> None:
        self.where, self.expected, self.found, self.todo = where, expected, found, todo
        super().__init__(f"{where}: expected {expected}, but {found}." + (f" {todo}" if todo else ""))

    def __reduce__(self) -> tuple[type[SilographError], tuple[str, ...]]:
        """From one process to another."""
        return type(self), (self.where, self.expected, self.found, self.todo)


class OwnEyes(str):
    """Words that may quote a record, for whoever holds it; `public` is what may be said elsewhere."""

    public: str

    def __new__(cls, public: str, error: Exception) -> OwnEyes:
        made = super().__new__(cls, f"{public} {type(error).__name__}: {error}")
        made.public = f"{public} {type(error).__name__}"
        return made


class InputError(SilographError, ValueError):
    """A file, table, option or plan that cannot be used as given."""

    code = "bad-input"
    exit_code = 2


class DamageError(InputError):
    """A ledger or run folder on disk is not what silograph wrote."""

    code = "damaged"


class BudgetError(InputError):
    """The next release would exceed the privacy budget; it was not made."""

    code = "budget"


class LeakError(SilographError):
    """A method tried to send something that did not pass the gate. This is a programming error in the method."""

    code = "leak"


class SilenceError(SilographError):
    """No silo answered for too long."""

    code = "silence"


class InterruptError(SilographError):
    """Somebody pressed Ctrl-C, and the same command does not go on where it stopped."""

    code = "interrupted"
    exit_code = 130


class TerminatedError(SilographError):
    """A supervisor sent SIGTERM."""

    code = "terminated"
    exit_code = 143


class SolverError(SilographError, ArithmeticError):
    """A numerical method did not reach its goal."""

    code = "solver"
