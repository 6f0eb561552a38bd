"""Estimators in scikit-learn's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from silograph.core.errors import InputError
from silograph.core.keys import secret_root
from silograph.data.silos import Silos, from_arrays
from silograph.kernels.edges import adjacency
from silograph.run.build import build
from silograph.run.loop import REHEARSAL, SECRET, simulate
from silograph.run.plan import ConsensusGraph as MethodPlan
from silograph.run.plan import Data, Plan, Privacy
from silograph.run.results import edges, privacy_section, to_networkx


class ConsensusGraph(BaseEstimator):
    """A graph for every site and the consensus graph, from the sites' signals.

    Parameters
    ----------
    degree : wanted mean degree of the sites' graphs (6, or less for few nodes, if neither this nor `beta` is given).
    beta, nu, lam, alpha : the weights of the model (8); what is None is chosen.
    solver : "exact" (with a certificate) or "paper" (Algorithm 1).
    epsilon, delta : total privacy budget of every site; None means no privacy.
    clip : public bound on the length of a signal around its own mean; None scales every signal to length 1.
    random_state : a whole number makes the noise repeatable, which is a rehearsal; None draws secret noise.

    Attributes
    ----------
    graphs_ : (sites, nodes, nodes) weight matrices, in the order the sites were given.
    consensus_ : (nodes, nodes) weight matrix.
    weights_ : contribution weight of every site to the consensus.
    gap_ : certified relative gap of (8), or None for the papers' solver.
    ledger_ : the rows of what left every site.
    privacy_ : the bill read from the ledger, as in result.json.
    parameters_, names_, nodes_, objective_, n_iter_ : as used.
    """

    def __init__(
        self,
        degree: float | None = None,
        *,
        beta: float | None = None,
        nu: float | None = None,
        lam: float | None = None,
        alpha: float = 1.0,
        solver: Literal["exact", "paper"] = "exact",
        epsilon: float | None = None,
        delta: float | None = None,
        clip: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.degree = degree
        self.beta = beta
        self.nu = nu
        self.lam = lam
        self.alpha = alpha
        self.solver = solver
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.random_state = random_state

    def fit(self, X: Any, y: None = None, *, names: Sequence[str] | None = None) -> Self:
        """Learn from a list of (signals, nodes) tables, one per site; a single table is one site."""
        silos = self._silos(X, names)
        plan = self._plan()
        setup = build(plan, silos)
        signals = dict(zip(silos.names, silos.signals, strict=True))
        seed, randomness = (secret_root(), SECRET) if plan.seed is None else (plan.seed, REHEARSAL)
        outcome, door = simulate(
            setup.method, setup.task, signals, setup.mechanism, setup.budget, seed, randomness=randomness
        )

        order = setup.topo.index(silos.names)
        self._vectors = outcome.arrays["graph"][order]
        self._consensus = outcome.arrays["consensus"]
        self.names_, self.nodes_ = list(silos.names), list(silos.nodes)
        self.graphs_ = np.stack([adjacency(w) for w in self._vectors])
        self.consensus_ = adjacency(self._consensus)
        self.weights_ = outcome.arrays["gamma"][order]
        self.gap_, self.objective_ = outcome.facts["certified_gap"], outcome.facts["objective"]
        self.parameters_, self.n_iter_ = outcome.facts["parameters"], outcome.facts["rounds"]
        self.ledger_ = list(door.ledger.rows)
        self.privacy_ = privacy_section(plan, setup, door)
        return self

    def to_networkx(self, site: str | None = None, threshold: float = 0.0) -> Any:
        """The consensus graph, or a site's, as a networkx.Graph with edge attribute `weight`."""
        check_is_fitted(self)
        if site is None:
            return to_networkx(list(edges(self._consensus, self.nodes_, threshold)), self.nodes_)
        if site not in self.names_:
            raise InputError("to_networkx", f"one of {', '.join(self.names_)}", f"{site!r} came")
        return to_networkx(list(edges(self._vectors[self.names_.index(site)], self.nodes_, threshold)), self.nodes_)

    def _silos(self, X: Any, names: Sequence[str] | None) -> Silos:
        if isinstance(X, list | tuple) and X and np.ndim(X[0]) == 2:
            silos = from_arrays(X, names, private=self.epsilon is not None)
            self.n_features_in_ = len(silos.nodes)
            return silos
        table = validate_data(self, X, dtype="numeric", ensure_min_samples=2, ensure_min_features=3)
        nodes = getattr(self, "feature_names_in_", None)
        return from_arrays([table], names, None if nodes is None else list(nodes), self.epsilon is not None)

    def _plan(self) -> Plan:
        method = MethodPlan(
            solver=self.solver, degree=self.degree, alpha=self.alpha, beta=self.beta, nu=self.nu, lam=self.lam
        )
        privacy = None if self.epsilon is None else Privacy(self.epsilon, self.delta, clip=self.clip)
        if privacy is None and (self.delta is not None or self.clip is not None):
            raise InputError("ConsensusGraph", "epsilon with delta or clip", "it is None")
        return Plan(Data(), method, privacy, seed=self.random_state)
