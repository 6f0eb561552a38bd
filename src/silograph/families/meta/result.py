"""What result.json says of a run that learned a shared start, from which every client takes steps of its own."""

from __future__ import annotations

from dataclasses import dataclass

from silograph.core.results import Result, Test

PAPER = "paper:"  # S4's own version, whose account does not hold
USUAL_LAYERS = (32,)  # hidden ones, where nobody asks for others


@dataclass(frozen=True)
class Task:
    answers: str
    target: str
    classes: list[str]
    features: list[str]
    shape: list[int]


@dataclass(frozen=True)
class Model:
    name: str
    parameters: int


@dataclass(frozen=True)
class Parameters:
    """`clip`, `curvature_clip` and `sigma` are None where nothing is protected.

    `personal_steps` is None where every client chooses.
    """

    version: str
    order: str
    rounds: int
    local_steps: int
    rate: float
    inner_step: float
    outer_step: float
    personal_step: float
    personal_steps: int | None
    clip: float | None
    curvature_clip: float | None
    sigma: float | None
    device: str


@dataclass(frozen=True)
class SourceClient:
    name: str
    records: int


@dataclass(frozen=True)
class NewClient:
    """Scores on records that it held back: before and after its own steps, and of the model that it gets alone.

    `left`: its own records asked for the latter.
    """

    name: str
    records: int
    test_records: int
    before: float
    after: float
    loss: float
    alone: float | None = None
    left: bool = False


@dataclass(frozen=True)
class Compared:
    """This run, then other ways of learning, which only a simulation can try."""

    method: str
    score: float | None


@dataclass(frozen=True)
class Round:
    round: int
    movement: float


@dataclass(frozen=True)
class MetaResult(Result):
    task: Task
    model: Model
    parameters: Parameters
    clients: list[SourceClient]
    new: list[NewClient]
    comparison: list[Compared]
    test: Test | None
    trace: list[Round]

    @property
    def sources(self) -> list[str]:
        return [client.name for client in self.clients]

    @property
    def newcomers(self) -> list[str]:
        return [client.name for client in self.new]

    @property
    def guarded(self) -> tuple[str, list[str]]:
        """Whom guarantees are for: what one of them is called, and their names.

        New clients are among them where they publish their models, for a budget of their own.
        """
        stated = {each.site for each in self.privacy.guarantees}
        if stated.isdisjoint(self.newcomers):
            return "source client", self.sources
        return "client", [*self.sources, *self.newcomers]

    @property
    def published(self) -> bool:
        """Whether the models of new clients are in the folder: protected, or because nothing was."""
        return self.privacy.mode == "exact" or self.guarded[0] == "client"
