"""Errors that say where, what was expected, what was found, and what to do.

Only an error's class and `code` may ever leave a silo; the text may quote data and stays where it was raised.
"""

from __future__ import annotations


class SilographError(Exception):
    """Base of everything silograph raises on purpose. `exit_code` is what the command line returns.

    >>> error = SilographError("north.csv, row 3", "a number", "found 'x'", "Correct it.")
    >>> str(error)
    "north.csv, row 3: expected a number, but found 'x'. Correct it."
    >>> error.code, error.exit_code
    ('failure', 1)
    """

    code = "failure"
    exit_code = 1

    def __init__(self, where: str, expected: str, found: str, todo: str = "") -> None:
        self.where, self.expected, self.found, self.todo = where, expected, found, todo
        super().__init__(f"{where}: expected {expected}, but {found}." + (f" {todo}" if todo else ""))

    def __reduce__(self) -> tuple[type[SilographError], tuple[str, ...]]:
        """From one process to another."""
        return type(self), (self.where, self.expected, self.found, self.todo)


class OwnEyes(str):
    """Words that may quote a record, for whoever holds it; `public` is what may be said elsewhere.

    >>> words = OwnEyes("The method failed.", ValueError("age 47"))
    >>> str(words), words.public
    ('The method failed. ValueError: age 47', 'The method failed. ValueError')
    """

    public: str

    def __new__(cls, public: str, error: Exception) -> OwnEyes:
        made = super().__new__(cls, f"{public} {type(error).__name__}: {error}")
        made.public = f"{public} {type(error).__name__}"
        return made


class InputError(SilographError, ValueError):
    """A file, table, option or plan that cannot be used as given.

    >>> raise InputError("--edges", "a whole number", "found -1")
    Traceback (most recent call last):
        ...
    silograph.core.errors.InputError: --edges: expected a whole number, but found -1.
    """

    code = "bad-input"
    exit_code = 2


class DamageError(InputError):
    """A ledger or run folder on disk is not what silograph wrote.

    >>> raise DamageError("ledger.jsonl, line 4", "the row that was written", "another")
    Traceback (most recent call last):
        ...
    silograph.core.errors.DamageError: ledger.jsonl, line 4: expected the row that was written, but another.
    """

    code = "damaged"


class BudgetError(InputError):
    """The next release would exceed the privacy budget; it was not made.

    >>> raise BudgetError("north, round 7", "epsilon of at most 2", "this release makes it 2.3")
    Traceback (most recent call last):
        ...
    silograph.core.errors.BudgetError: north, round 7: expected epsilon of at most 2, but this release makes it 2.3.
    """

    code = "budget"


class LeakError(SilographError):
    """A method tried to send something that did not pass the gate. This is a programming error in the method.

    >>> raise LeakError("local", "values from the gate", "found an array")
    Traceback (most recent call last):
        ...
    silograph.core.errors.LeakError: local: expected values from the gate, but found an array.
    """

    code = "leak"


class SilenceError(SilographError):
    """No silo answered for too long.

    >>> raise SilenceError("round 3", "an answer within 60 s", "no silo answered")
    Traceback (most recent call last):
        ...
    silograph.core.errors.SilenceError: round 3: expected an answer within 60 s, but no silo answered.
    """

    code = "silence"


class InterruptError(SilographError):
    """Somebody pressed Ctrl-C, and the same command does not go on where it stopped.

    >>> InterruptError("silograph serve", "to finish", "Ctrl-C was pressed").exit_code
    130
    """

    code = "interrupted"
    exit_code = 130


class TerminatedError(SilographError):
    """A supervisor sent SIGTERM.

    >>> TerminatedError("silograph serve", "to finish", "SIGTERM arrived").exit_code
    143
    """

    code = "terminated"
    exit_code = 143


class SolverError(SilographError, ArithmeticError):
    """A numerical method did not reach its goal.

    >>> raise SolverError("dual_newton", "a gap of at most 1e-9", "found 1e-3 after 100 steps")
    Traceback (most recent call last):
        ...
    silograph.core.errors.SolverError: dual_newton: expected a gap of at most 1e-9, but found 1e-3 after 100 steps.
    """

    code = "solver"
