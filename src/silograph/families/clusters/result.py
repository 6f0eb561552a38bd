"""What result.json says of a run that learned a model for every client, in clusters, over a graph of servers."""

from __future__ import annotations

from dataclasses import dataclass

from silograph.core.results import Compared, LinearTask, Result, ServerGraph, ServerRound, Test


@dataclass(frozen=True)
class Variances:
    """Of deviations, relative to the noise in a record; features have variance 1, and 0 is their mean."""

    clients_constant: float
    clients_slopes: tuple[float, ...]  # of each feature
    clusters_constant: float
    clusters_slopes: float


@dataclass(frozen=True)
class Parameters:
    """What only S2 has is None where random effects or calibrated models learned. `own_constants` is the variance of
    clients' own constants, relative to a record's noise (of logits, for classes); None where nobody asked."""

    penalty: float | None
    rounds: int
    tau: float | str | None
    tau_decay: float | None
    form: str | None
    weights: str | None
    step: str | None
    sample: int | None
    protect: str
    clip: float | None
    radius: float | None
    masks: str
    noise: float | None
    found: bool
    reach: str = "region"
    learner: str = "papers"
    variances: Variances | None = None
    slopes: bool | None = None
    expected: float | None = None
    own_constants: float | None = None


@dataclass(frozen=True)
class Cluster:
    name: str
    clients: int
    model: list[float]
    test_error: float | None


@dataclass(frozen=True)
class Client:
    name: str
    server: str
    cluster: str
    test_error: float | None


@dataclass(frozen=True)
class ClusteredResult(Result):
    """`exchange` has a row for every cluster: the shares it takes of the others' models and of its own.

    In the folder of one region `clusters` are its server's models, and `disagreement` is None.
    """

    task: LinearTask
    parameters: Parameters
    topology: ServerGraph
    clusters: list[Cluster]
    exchange: list[list[float]]
    clients: list[Client]
    comparison: list[Compared]
    test: Test | None
    disagreement: float | None
    trace: list[ServerRound]

    @property
    def guarded(self) -> tuple[str, list[str]]:
        """Whom guarantees are for: what one of them is called, and their names.

        A cell is the clients of one server that are in one cluster.
        """
        if self.parameters.protect == "records":
            return "client", [client.name for client in self.clients]
        if self.parameters.protect == "clients":
            return "cell", list(dict.fromkeys(f"{client.server}/{client.cluster}" for client in self.clients))
        here = {client.server for client in self.clients}
        return "server", [server for server in self.topology.servers if server in here]
