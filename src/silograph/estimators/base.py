"""What all estimators share: parameters that are fields of a plan, one way to learn, a card for notebooks.

The plan's sections have the default values and descriptions of parameters. An estimator is a dataclass that names the
fields it offers; both have annotations, so that editors know them, and a test compares them.
"""

from __future__ import annotations

import inspect
import os
import textwrap
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MethodType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.schema import public, read
from silograph.core.types import Json
from silograph.methods.base import Outcome, State
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.report.build import build
from silograph.report.servers import sums_lines
from silograph.run.jobs import Job, Slow, run_in_memory
from silograph.run.plan import dumps
from silograph.run.results import write_result
from silograph.run.run import IN_ONE_PROCESS
from silograph.run.sections import moved
from silograph.run.store import refuse_occupied

RandomState = int | np.random.Generator | np.random.RandomState | None

_WIDTH = 116  # of a docstring's lines
_EVERYWHERE = {
    "random_state": "A whole number or a numpy generator makes noise and samples repeatable: a rehearsal, which is not "
    "private. None: they are secret."
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

    def __dir__(self) -> list[str]:
        """All names, with those that a budget refuses: scikit-learn would look each of them up."""
        return list(object.__dir__(self))

    def _section(self, kind: type[Any], **settled: Any) -> Any:
        """Read parameters as a section of a plan, like those of a file: one of another type is refused by its name."""
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
        for words in sums_lines(job.takes) if isinstance(job, Slow) else ():
            warnings.warn(words, stacklevel=3)
        trace: list[Json] = []

        def watch(state: State) -> None:
            if (line := job.method.trace(state.servers)) is not None:
                trace.append({"round": state.round, **line})

        outcome, door = run_in_memory(job, job.plan.seed, watch)
        self.ledger_ = list(door.ledger.rows)
        self._run = job, outcome, trace, door
        return outcome, door

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of a pickle the tables that the estimator learned from."""
        kept: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in kept.items() if name != "_run"}

    def save(self, folder: str | Path) -> None:
        """Write a run folder, as `silograph run` does: what was learned, the ledger, the costs and the report.

        `silograph report`, `compare` and `privacy` read it, and so does `silograph.open_run`. It holds no table; a plan
        of tables that were in memory names none.

        >>> import os
        >>> from silograph import ConsensusGraph
        >>> x = np.random.default_rng(0).normal(size=(50, 3))
        >>> ConsensusGraph(edges=1).fit(x).save("run")
        >>> sorted(os.listdir("run"))
        ['consensus.csv', 'consensus.graphml', 'ledger.jsonl', 'plan.toml', 'report.html', 'result.json', 'sites']
        """
        goal = Path(os.path.abspath(folder))
        refuse_occupied(goal)
        goal.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=goal.parent, prefix=f".{goal.name}.") as hidden:
            made = Path(hidden) / "run"
            self._write(made, goal)
            os.replace(made, goal)

    def report(self, path: str | Path | None = None) -> str:
        """Make the HTML page that a run folder has; write it to the file `path`, too, if one is named.

        >>> from silograph import ConsensusGraph
        >>> x = np.random.default_rng(0).normal(size=(50, 3))
        >>> "<h1" in ConsensusGraph(edges=1).fit(x).report("report.html")
        True
        """
        with TemporaryDirectory() as folder:
            self._write(Path(folder) / "run", Path.cwd() / "run")
            page = (Path(folder) / "run" / "report.html").read_text(encoding="utf-8")
        if path is not None:
            write_atomically(Path(path), page.encode())
        return page

    def _write(self, folder: Path, goal: Path) -> None:
        """The run folder; files that its plan names are named as they are seen from `goal`."""
        check_is_fitted(self)
        if not hasattr(self, "_run"):
            found, todo = self._no_run()
            raise InputError(type(self).__name__, "the estimator that was fitted", found, todo)
        job, outcome, trace, door = self._run
        folder.mkdir()
        Ledger(folder / "ledger.jsonl").append(door.ledger.rows)
        told = job.write(folder, outcome, list(trace), door)
        told.privacy.notes.append(IN_ONE_PROCESS)
        write_result(folder, dumps(moved(job.plan, Path(), goal)), job.plan.seed, door, told)
        write_atomically(folder / "report.html", build(folder).encode())

    def _no_run(self) -> tuple[str, str]:
        """Why there is nothing to report on: what was found, and what to do."""
        todo = "Save before pickling: a pickle, or a copy, does not carry the tables that a report looks at."
        return "found a copy of it", todo

    def _html_repr(self) -> str:
        """For notebooks: what was learned, once there is something; before that scikit-learn's own diagram."""
        try:
            check_is_fitted(self)
        except NotFittedError:
            return str(super()._html_repr())
        return self._card()

    def _card(self) -> str:
        raise NotImplementedError


class InTheOpen:
    """Mark a method that reads records in the clear. With a budget silograph refuses it when it is looked up, so that
    a search is refused before its first fit."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: Any, kind: type[Any] | None = None) -> Any:
        if owner is None:
            return self._method
        refuse_search(owner.epsilon)
        return MethodType(self._method, owner)


def refuse_search(epsilon: float | None) -> None:
    """Scores are not protected, and whoever looks for the best parameters by them spends the budget again and again."""
    if epsilon is not None:
        todo = "Choose parameters before you fit, by what is public."
        found = "found a budget: a score looks at records in the clear, and a search spends it in every fit"
        raise InputError("score", "no privacy", found, todo)


def plain(value: Any) -> Any:
    """As TOML has it: Python's numbers, lists of them, and names of files."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value
