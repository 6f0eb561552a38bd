"""A plan: what will run, as data. It can be written down, sent, approved, costed and run again.

What a plan may say is its family's affair; here it is only read and written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from silograph import families
from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.schema import check, of_format, read, write
from silograph.core.types import EngineName
from silograph.run.sections import read_toml

FORMAT = 1
DEFAULT_METHOD = "consensus_graph"
DEFAULT_DELTA = 1e-6
NOT_COMPARED = "the comparison with other ways of learning: it needs all records in one place"


class Named(Protocol):
    """A plan's [method]."""

    @property
    def name(self) -> str: ...


class Files(Protocol):
    """A plan's [data]: one private table for every organisation."""

    @property
    def files(self) -> tuple[str, ...]: ...


class Plan:
    """What every plan says and can be asked; a family's own plan is a frozen dataclass of sections.

    >>> from silograph.families.graphs.plan import Data, GraphPlan, Privacy
    >>> plan = GraphPlan(Data(files=("north.csv",)), privacy=Privacy(epsilon=2.0), seed=1)
    >>> plan.rehearsal, plan.without_seed().rehearsal, plan.total_delta
    (True, False, 1e-06)
    >>> plan.tells_counts, plan.tells_clusters, plan.samples_records
    (True, False, False)
    >>> plan.deployable() == plan, plan.left_out(), plan.without_device() == plan
    (True, [], True)
    >>> plan.spelled_out(columns=30, organisations=3).privacy.epsilon
    2.0
    """

    if TYPE_CHECKING:  # a property here would become the default of the dataclass's field

        @property
        def data(self) -> Files: ...

        @property
        def method(self) -> Named: ...

        @property
        def privacy(self) -> Any:
            """The budget, or None where nothing is to be protected."""

        @property
        def engine(self) -> EngineName: ...

        @property
        def seed(self) -> int | None: ...

    def __post_init__(self) -> None:
        check(self, "plan")

    @property
    def rehearsal(self) -> bool:
        """Whether the noise of a protected run is public: it follows from the seed."""
        return self.privacy is not None and self.seed is not None

    @property
    def total_delta(self) -> float:
        """The delta of its guarantees; 0 where nothing is protected."""
        return 0.0 if self.privacy is None else float(self.privacy.delta)

    @property
    def samples_records(self) -> bool:
        """Whether a silo computes from secret samples of its records."""
        return False

    @property
    def tells_counts(self) -> bool:
        """Whether organisations may tell how many records a silo has; not where that is part of what is protected."""
        return True

    @property
    def tells_clusters(self) -> bool:
        """Whether organisations tell each other in which cluster a silo is."""
        return False

    def without_seed(self) -> Self:
        """The same with secret noise."""
        return replace(cast("Any", self), seed=None)  # type: ignore[no-any-return]

    def without_device(self) -> Self:
        """The plan for whoever computes nothing with it, and so needs none of the hardware it asks for."""
        return self

    def spelled_out(self, columns: int, organisations: int) -> Self:
        """The same with every default written out that follows from the public numbers of columns and organisations.

        So organisations agree on it.
        """
        return self

    def deployable(self) -> Self:
        """The plan less what needs several organisations' tables in one place, with real masks where it skips them."""
        return self

    def left_out(self) -> list[str]:
        """What `deployable` leaves out, in words."""
        return []


class PlanPart(Protocol):
    """A family's part `plan`."""

    PLAN: type[Plan]


def load(path: str | Path) -> Plan:
    """Read a plan file; paths in it stay relative to it.

    `path` is the plan file.

    >>> from pathlib import Path
    >>> lines = ["format = 1", "data.files = ['one.csv']", "method.degree = 2.0"]
    >>> size = Path("plan.toml").write_text(chr(10).join(lines))
    >>> plan = load("plan.toml")
    >>> plan.method.name, plan.method.degree, plan.data.files, plan.seed
    ('consensus_graph', 2.0, ('one.csv',), None)
    """
    return parse(read_toml(Path(path)), str(path))


def parse(content: Mapping[str, Any], where: str, to_run: bool = True) -> Plan:
    """The plan. One that ran in Python, on tables in memory, names none, and cannot be run again."""
    rest = of_format(content, FORMAT, where)
    method = rest.get("method")
    name = method.get("name", DEFAULT_METHOD) if isinstance(method, dict) else DEFAULT_METHOD
    name = families.check_name(name, f"{where}, method.name")
    data = rest.setdefault("data", {})
    if to_run and isinstance(data, dict) and not data.get("files"):
        raise InputError(f"{where}, data", "files = [...] with at least one table", "found none")
    with wording.speaking("plan"):
        return read(families.part(name, "plan", PlanPart).PLAN, rest, where)


def dumps(plan: Plan) -> str:
    """Write `plan` as a plan file; values that are None are left out.

    >>> from silograph.families.federation.plan import FederationMethod, FederationPlan, RegionData
    >>> data = RegionData(files=("north.csv",), agent="ward", target="y")
    >>> plan = FederationPlan(data, method=FederationMethod(), seed=1)
    >>> [line for line in dumps(plan).splitlines() if line.startswith(("format", "seed", "agent", "target"))]
    ['format = 1', 'seed = 1', 'agent = "ward"', 'target = "y"', 'seed = 0']
    """
    import tomli_w

    # Sections come after plain values in TOML.
    ordered = sorted(write(plan, nulls=False).items(), key=lambda item: isinstance(item[1], dict))
    return tomli_w.dumps({"format": FORMAT, **dict(ordered)})
