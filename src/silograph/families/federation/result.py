"""What result.json says of a run that learned a model in every region of a graph of servers."""

from __future__ import annotations

from dataclasses import dataclass, field

from silograph.core.results import Compared, LinearTask, Result, ServerGraph, ServerRound, Test


@dataclass(frozen=True)
class Parameters:
    step: float | None
    rounds: int
    sample: int | None
    epochs: list[int]
    batch: list[int] | None
    perturbation: str
    clip: float | None
    noise: float | None
    noise_least: float | None
    masks: str
    reach: str = "region"
    personal: float = 0.0
    learner: str = "papers"
    slopes: bool | None = None
    expected: float | None = None


@dataclass(frozen=True)
class Region:
    """`records` is None where how many there are is part of what is protected."""

    name: str
    agents: int
    records: int | None
    model: list[float]
    test_error: float | None
    noise: float | None = None


@dataclass(frozen=True)
class Centroid:
    """The mean of the regions' models."""

    model: list[float]
    test_error: float | None


@dataclass(frozen=True)
class FederationResult(Result):
    """`centroid` and `disagreement` are None in the folder of one region, which does not know the others' models."""

    task: LinearTask
    parameters: Parameters
    topology: ServerGraph
    regions: list[Region]
    centroid: Centroid | None
    test: Test | None
    disagreement: float | None
    trace: list[ServerRound]
    comparison: list[Compared] = field(default_factory=list)
