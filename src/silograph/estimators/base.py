"""What all estimators share: parameters that are fields of a plan, one way to learn, a card for notebooks.

Default values and descriptions of parameters stand in the plan's sections. An estimator is a dataclass that names the
fields it offers; annotations stand in both places, so that editors know them, and a test compares them.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from silograph.core.errors import InputError
from silograph.core.schema import public, read
from silograph.methods.base import Outcome
from silograph.privacy.door import Door
from silograph.run.jobs import Job, run_in_memory

RandomState = int | np.random.Generator | np.random.RandomState | None

_WIDTH = 116  # of a docstring's lines
_EVERYWHERE = {
    "random_state": "A whole number, or a numpy generator, makes noise and samples repeatable, which is a rehearsal; "
    "None draws secret ones."
}


class PlanEstimator(BaseEstimator):
    #: Sections of the plan; parameters are fields of theirs.
    _sections: ClassVar[tuple[type[Any], ...]] = ()
    #: Descriptions of parameters that differ from the plan's.
    _words: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        """Write the parameters into the class's docstring, above its attributes."""
        super().__init_subclass__(**more)
        owners = [owner for owner in reversed(cls.__mro__) if issubclass(owner, PlanEstimator)]
        names = [name for owner in owners for name in inspect.get_annotations(owner) if not name.startswith("_")]
        if names and cls.__doc__:
            planned = {part.name: part.metadata.get("help") for kind in cls._sections for part in fields(kind)}
            told = planned | _EVERYWHERE | dict(cls._words)
            lines = [textwrap.fill(f"{name} : {told[name]}", _WIDTH, subsequent_indent="    ") for name in names]
            head, rule, rest = inspect.cleandoc(cls.__doc__).partition("Attributes\n----------\n")
            parameters = "\n".join(["Parameters", "----------", *lines])
            cls.__doc__ = f"{head}{parameters}\n\n{rule}{rest}"

    def _section(self, kind: type[Any], **settled: Any) -> Any:
        """Parameters as a section of a plan, read like a file's: one of another type is refused by its name."""
        given = self.get_params(deep=False) | settled
        differ = [part.name for part in fields(kind) if given.get(part.name, part.default) is not part.default]
        return read(kind, {public(name): plain(given[name]) for name in differ}, type(self).__name__)

    def _budget(self, kind: type[Any], *needing: str) -> Any:
        """The section on privacy; None without epsilon, which the parameters `needing` it then must not have."""
        params = self.get_params(deep=False)
        if params["epsilon"] is not None:
            return self._section(kind)
        if any(params[name] is not None for name in needing):
            raise InputError(type(self).__name__, f"epsilon with {' or '.join(needing)}", "it is None")
        return None

    def _learn(self, job: Job) -> tuple[Outcome, Door]:
        outcome, door = run_in_memory(job, job.plan.seed)
        self.ledger_ = list(door.ledger.rows)
        return outcome, door

    def _html_repr(self) -> str:
        """For notebooks: what was learned, once there is something; before that scikit-learn's own diagram."""
        try:
            check_is_fitted(self)
        except NotFittedError:
            return str(super()._html_repr())
        return self._card()

    def _card(self) -> str:
        raise NotImplementedError


def plain(value: Any) -> Any:
    """As TOML has it: Python's numbers, and lists of them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value
