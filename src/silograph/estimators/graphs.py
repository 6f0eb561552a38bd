"""Consensus graphs as an estimator that works like scikit-learn's."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from silograph.core.errors import InputError
from silograph.core.keys import seed_of
from silograph.core.results import Link
from silograph.core.toml import parse_toml
from silograph.core.types import Array
from silograph.data.categories import Categories, level_nodes, with_levels
from silograph.data.columns import without
from silograph.data.silos import Silos, from_arrays, given_grid
from silograph.data.tables import (
    Grid,
    as_frame,
    check_same_names,
    checked_values,
    listed,
    named,
    without_index,
)
from silograph.estimators.base import InTheOpen, PlanEstimator, RandomState
from silograph.families.graphs.files import CONFIDENCE, COULD_SEE, PROBABILITY, SIGN, Edge, edges, to_networkx
from silograph.families.graphs.job import GraphJob, read_sites
from silograph.families.graphs.plan import ConsensusGraph as MethodPlan
from silograph.families.graphs.plan import Data, GraphPlan, Privacy
from silograph.families.graphs.read import GraphRun
from silograph.families.graphs.results import could_see, of_consensus, of_site, own_nodes, privacy_section
from silograph.families.graphs.units import in_units
from silograph.kernels.edges import adjacency, edge_count
from silograph.kernels.masks import pooled
from silograph.kernels.spaces import AllPairs
from silograph.privacy.ledger import Ledger
from silograph.report.build import read
from silograph.report.notebook_card import COST, card, protected, small_graph, worst
from silograph.report.plots import plot_graph
from silograph.run.plan import parse

_SAME_COLUMNS = "Give every table the columns of `fit`, by the same names; their order does not matter."


@dataclass(eq=False, repr=False)
class ConsensusGraph(PlanEstimator):
    """Learn a graph for every site, and the consensus graph, from the sites' signals.

    The likelihood finds the edges and their signs, then fits the precision T of a site on these edges. R are the site's
    correlations, shrunk towards those of all sites. The papers' model (8) couples graphs w_i >= 0 with a consensus v:

        likelihood    max over T    logdet T - tr(R T),    weight of an edge (a, b) = -T_ab / sqrt(T_aa T_bb)
        papers        min over w_i, v    sum_i g_i(w_i) + lam nu sum_i |w_i - v|_2 + lam |v|_1                 (8)
                      g_i(w) = z_i . w - alpha sum_a log(degree of a) + 2 beta |w|^2

    z_i are the mean squared differences of two nodes' signals at site i. Missing values are NaN, or masked. The sites'
    DataFrames may have different columns: `nodes` says what happens then.

    Attributes
    ----------
    graphs_ : (sites, nodes, nodes) weight matrices, in the order the sites were given; sparse ones on candidate edges.
        Weights of the likelihood are partial correlations, with their signs. None if only a sum was revealed.
    consensus_ : (nodes, nodes) weight matrix.
    precision_ : (sites, nodes, nodes), as the likelihood fitted them; None with other learners.
    covariance_ : The inverse of each matrix in `precision_`, or None.
    consensus_precision_ : (nodes, nodes), the likelihood's precision of the pooled rows, or None.
    signs_ : Like `graphs_`, with -1, 0 and 1; None if relations have no signs.
    probabilities_ : Like `graphs_`, the probability that a site has an edge; None with other learners.
    consensus_probabilities_ : (nodes, nodes), the probability that sites share an edge; None with other learners.
    path_ : The numbers of edges that were tried and the score of each, if the number was chosen.
    reason_ : Why this number of edges was chosen, in words.
    location_ : (sites, nodes), the mean row of every site, which stays with the site; None with other learners.
    could_see_ : (nodes, nodes), how many sites have both nodes of a pair; None if all sites have all nodes.
    confidence_ : Like `graphs_`, how often an edge appears when signals are resampled; None with other learners than
        the papers' model, and with privacy.
    effective_rows_ : (sites,), with privacy: the noise costs as much as having only so many rows. None without, with
        votes, and if only a sum was revealed.
    consensus_effective_rows_ : The same of the consensus.
    weights_ : (sites,), how much every site counts in the consensus.
    gap_ : The certified bound on how far the graphs are from the optimum: for the likelihood in nats per row and node,
        for (8) relative to its value. None with the papers' solver and with votes.
    ledger_ : A row for everything that left a site.
    privacy_ : The cost, computed from the ledger, as in result.json.
    parameters_ : The parameters of the learner, with those that were chosen automatically.
    names_ : The sites' names.
    nodes_ : The nodes' names.
    objective_ : The value of what was optimised.
    n_iter_ : How many rounds were taken.

    Examples
    --------
    >>> import numpy as np
    >>> from silograph import ConsensusGraph
    >>> rng = np.random.default_rng(0)
    >>> def site(rows):
    ...     x = rng.normal(size=(rows, 4))
    ...     return np.column_stack([x[:, 0], x[:, 0] + x[:, 1], x[:, 2], x[:, 3] - x[:, 2]])
    >>> sites = {"north": site(200), "south": site(300)}
    >>> model = ConsensusGraph(edges=2).fit(sites)
    >>> sorted(model.to_networkx().edges)
    [('node_0', 'node_1'), ('node_2', 'node_3')]
    >>> model.signs_[0][2]
    array([ 0.,  0.,  0., -1.])
    >>> model.to_pandas("south")[["source", "target", "sign"]]
       source  target  sign
    0  node_0  node_1     1
    1  node_2  node_3    -1
    >>> fresh = [site(1000), site(1000)]
    >>> model.score(fresh) > ConsensusGraph(edges=1).fit(sites).score(fresh)
    True
    >>> axes = model.plot("north")
    >>> model.save("run")
    >>> ConsensusGraph.load("run").nodes_
    ['node_0', 'node_1', 'node_2', 'node_3']
    >>> private = ConsensusGraph(edges=2, epsilon=4, scale="none").fit(sites)
    >>> sorted({(cost["site"], round(cost["epsilon"], 3)) for cost in private.privacy_["guarantees"]})
    [('north', 4.0), ('south', 4.0)]
    """

    _sections = (Data, MethodPlan, Privacy)
    _words: ClassVar[Mapping[str, str]] = {
        "drop": "Names of columns to leave out, at every site that has them.",
        "keep": "Names of columns that are measurements, whatever they look like.",
        "categories": "Columns of words and all their levels, {'sex': ('f', 'm')}: a node of 0 and 1 for each level "
        "but the first.",
        "epsilon": "Total privacy budget of every site; None means no privacy.",
    }

    degree: float | None = MethodPlan.degree
    _: KW_ONLY
    density: float | None = MethodPlan.density
    edges: int | None = MethodPlan.edges
    consensus_density: float | None = MethodPlan.consensus_density
    learner: Literal["likelihood", "papers", "log-det", "votes", "log-degree"] | None = MethodPlan.learner
    reveal: Literal["moments", "sum"] | None = MethodPlan.reveal
    choose_by: Literal["expected-F", "ebic", "held-out"] | None = MethodPlan.choose_by
    nonnegative: bool | None = MethodPlan.nonnegative
    confidence: float | None = MethodPlan.confidence
    scale: str | None = Data.scale
    nodes: Literal["all", "common", "same"] | None = Data.nodes
    unit_column: str | None = Data.unit_column
    site_column: str | None = Data.site_column
    candidates: str | None = Data.candidates
    neighbours: int | None = Data.neighbours
    coordinates: str | None = Data.coordinates
    drop: tuple[str, ...] = Data.drop
    keep: tuple[str, ...] = Data.keep
    categories: Categories | None = Data.categories
    resamples: int | None = MethodPlan.resamples
    beta: float | None = MethodPlan.beta
    nu: float | None = MethodPlan.nu
    lam: float | None = MethodPlan.lam
    alpha: float = MethodPlan.alpha
    solver: Literal["exact", "paper"] = MethodPlan.solver
    coupling_by: Literal["rule", "held-out"] = MethodPlan.coupling_by
    threshold: float = MethodPlan.threshold
    device: Literal["cpu", "cuda"] | None = MethodPlan.device
    epsilon: float | None = None
    mode: Literal["one-release", "correlated", "secure-sum", "per-round"] | None = Privacy.mode
    mechanism: Literal["gaussian", "laplace"] = Privacy.mechanism
    delta: float | None = Privacy.delta
    clip: float | None = Privacy.clip
    random_state: RandomState = None

    def fit(self, X: Any, y: None = None, *, names: Sequence[str] | None = None) -> Self:
        """Learn from one table (signals, nodes) per site; `y` is ignored.

        `X` is a list of arrays or DataFrames (pandas, polars, pyarrow), a dict of them by site, or paths of files and
        folders; a single table is one site. `names` are the sites' names if `X` has none.
        """
        plan = self._plan(X)
        silos = self._silos(plan, X, names)
        job = GraphJob.of(plan, in_units(plan, silos, Path()), Path())
        outcome, door = self._learn(job)

        setup, self._space = job.setup, job.setup.task.space
        order = setup.topo.index(silos.names)
        arrays = outcome.arrays
        self._more = [of_site(arrays, int(k)) for k in order] if "graph" in arrays else []
        self._more_of_consensus = of_consensus(arrays)
        self.could_see_: Any = None
        if setup.lacks:
            self._more_of_consensus = {**self._more_of_consensus, COULD_SEE: could_see(setup)}
            self.could_see_ = self._matrices(self._more_of_consensus[COULD_SEE][None])[0]
        sites = zip(order, self._more, strict=False)  # of a sum there are none
        self._vectors = [_sure(arrays["graph"][k], more, self.confidence) for k, more in sites]
        self._consensus = _sure(arrays["consensus"], self._more_of_consensus, self.confidence)
        self.names_, self.nodes_ = list(silos.names), list(silos.nodes)
        self._own_nodes = [own_nodes(silos.nodes, setup, int(k)) for k in order]
        self._set_graphs()
        self.confidence_ = self._matrices(arrays["confidence"][order]) if "confidence" in arrays else None
        self._set_likelihood(silos, arrays, order)
        effective = arrays.get("effective_rows")
        self.effective_rows_ = effective[order] if effective is not None and self._more else None
        self.consensus_effective_rows_ = None if effective is None else float(effective[-1])
        self.weights_ = arrays["gamma"][order]
        self.gap_, self.objective_ = outcome.facts["certified_gap"], outcome.facts["objective"]
        self.parameters_, self.n_iter_ = outcome.facts["parameters"], outcome.facts["rounds"]
        self.path_, self.reason_ = outcome.facts.get("path"), outcome.facts.get("reason")
        self.privacy_ = privacy_section(plan, setup, door, outcome.facts)
        return self

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read the graphs of a run folder that `save`, the command line or a deployment wrote.

        The folder does not hold what only `fit` knows: `precision_`, `covariance_` and `location_` are None, and
        `score` is refused.
        """
        run, where = read(folder), str(Path(folder) / "plan.toml")
        plan = parse(parse_toml(run.plan, where), where, to_run=False)
        if not isinstance(run, GraphRun) or not isinstance(plan, GraphPlan):
            raise InputError(str(folder), "a run that learned graphs", f"this one learned {run.result.method}")
        sections = [section for section in (plan.data, plan.method, plan.privacy) if section is not None]
        params = inspect.signature(cls).parameters
        given = {name: getattr(section, name) for section in sections for name in params if hasattr(section, name)}
        made, result, pairs = cls(**given, random_state=plan.seed), run.result, AllPairs(len(run.result.nodes))
        made._loaded = Path(os.path.abspath(folder))
        made._space, made.nodes_, made.names_ = pairs, list(result.nodes), [site.name for site in result.sites]
        made.n_features_in_, made._own_nodes = len(result.nodes), [made.nodes_] * len(result.sites)
        (made._consensus, made._more_of_consensus), *sites = (
            _vectors_of(run, name, links) for name, links in [(None, run.consensus), *run.sites.items()]
        )
        made._vectors, made._more = [w for w, _ in sites], [more for _, more in sites]
        made._set_graphs()
        sure = [more.get(PROBABILITY if run.likely else CONFIDENCE) for more in made._more]
        known = made._matrices(np.array(sure)) if sure and sure[0] is not None else None
        made.probabilities_, made.confidence_ = (known, None) if run.likely else (None, known)
        of_all = made._more_of_consensus.get(PROBABILITY)
        made.consensus_probabilities_ = None if of_all is None else made._matrices(of_all[None])[0]
        made.could_see_ = made.precision_ = made.consensus_precision_ = made.covariance_ = made.location_ = None
        made.weights_ = np.array([site.weight for site in result.sites])
        effective = [site.effective_rows for site in result.sites]
        made.effective_rows_ = None if None in effective else np.array(effective, dtype=float)
        made.consensus_effective_rows_ = result.consensus.effective_rows
        made.gap_, made.objective_, made.parameters_ = result.certified_gap, result.objective, result.parameters
        made.n_iter_, made.path_, made.reason_ = result.rounds, run.json.get("path"), result.reason
        made.privacy_, made.ledger_ = run.json["privacy"], list(Ledger(Path(folder) / "ledger.jsonl", mend=False).rows)
        return made

    def _no_run(self) -> tuple[str, str]:
        if self._loaded is None:
            return super()._no_run()
        return "found one that was loaded", f"Its page is {self._loaded / 'report.html'}; copy the folder to save it."

    def _set_graphs(self) -> None:
        self.signs_: Any = None
        self.graphs_: Any = None
        if self._more:
            self.signs_, self.graphs_ = self._signed(self._vectors, self._more)
        self.consensus_ = self._signed([self._consensus], [self._more_of_consensus])[1][0]

    def _signed(self, vectors: Sequence[Array], more: Sequence[Mapping[str, Array]]) -> tuple[Any, Any]:
        """Signs of what is drawn, None where relations have none; and weight matrices with them."""
        weights = self._matrices(np.array(vectors))
        if not more or SIGN not in more[0]:
            return None, weights
        drawn = [known[SIGN] * (w > 0.0) for known, w in zip(more, vectors, strict=True)]
        signs = self._matrices(np.array(drawn))
        return signs, weights * signs

    def _set_likelihood(self, silos: Silos, arrays: Mapping[str, Array], order: Sequence[int]) -> None:
        """What only the likelihood knows, and of sites only where they revealed their moments."""
        known, likely = "precision" in arrays, "consensus_precision" in arrays
        self.precision_: Array | None = arrays["precision"][order] if known else None
        self.consensus_precision_: Array | None = arrays["consensus_precision"] if likely else None
        self.covariance_ = np.linalg.inv(arrays["precision"][order]) if known else None
        self.probabilities_ = self._matrices(arrays["probability"][order]) if known else None
        self.consensus_probabilities_ = self._matrices(arrays["shared"][None])[0] if likely else None
        self.location_: Array | None = None
        if known:
            self.location_ = np.array([_location(np.asarray(own)) for own in silos.signals])

    @InTheOpen
    def score(self, X: Any, y: None = None) -> float:
        """Return the mean log-likelihood of a row x of `X`, under a Gaussian with mean m and precision T:

            (logdet T - (x - m)' T (x - m) - d log(2 pi)) / 2

        Tables of the sites of `fit`, in their order or by name, are scored with each site's own graph; a single table
        is scored with the consensus, or with the only site's graph, and so are tables of another number than the sites
        of `fit`, as in cross-validation over sites. Columns of DataFrames are matched by their names, but if `fit` had
        one table alone, they must have its order. A row with gaps has the likelihood of the values that it has. `y` is
        ignored. It is refused with epsilon.
        """
        check_is_fitted(self)
        if self._loaded is not None:
            todo = "Score with the estimator that was fitted; pickle keeps it."
            raise InputError("score", "an estimator that was fitted", "this run was loaded: it has graphs only", todo)
        precision, location, together = self.precision_, self.location_, self.consensus_precision_
        if precision is None or location is None or together is None:
            todo = "Fit with it, and without reveal='sum'."
            raise InputError("score", "the learner 'likelihood', with every site's moments", "found another", todo)
        given = self._given(X)
        alone = len(given) != len(self.names_)
        if not alone and np.isnan(location).any():
            todo = "Score one table at a time: it is held against the consensus."
            raise InputError("score", "sites that had all nodes in `fit`", "some lacked nodes", todo)
        tables = [self._rows(table, f"score, table {place}") for place, table in enumerate(given)]
        if alone:
            precision = np.repeat(together[None], len(tables), 0)
            location = np.repeat(_common_location(location, self.weights_)[None], len(tables), 0)
        scored = [_log_likelihood(*each) for each in zip(tables, location, precision, strict=True)]
        return float(np.concatenate(scored).mean())

    def _given(self, X: Any) -> list[Any]:
        """Tables to score, in the order of the sites."""
        if self.site_column is not None and self.site_column in getattr(X, "columns", ()):
            X = _by_site(X, self.site_column)
        if _are_named(X):
            names = [str(name) for name in X]
            todo = "Or score a list of tables, or one table."
            check_same_names(names, self.names_, "score", "a table of each site of `fit`", todo)
            tables = dict(zip(names, X.values(), strict=True))
            return [tables[name] for name in self.names_]
        if _are_tables(X):
            return list(X)
        if as_frame(X) is None:
            validate_data(self, X, reset=False, dtype=None, ensure_all_finite=False)
        elif hasattr(self, "feature_names_in_"):  # scikit-learn wants the order of columns, too
            validate_data(self, X, reset=False, skip_check_array=True)
        return [X]

    def _rows(self, given: Any, where: str) -> Array:
        """A table's numbers, in the order of the nodes. Values are named in no error."""
        nodes = list(self.nodes_)
        grid = without_index(given_grid(given, where, None))
        if grid.column_names is not None and self._named:
            left_out = [*self.drop, *([] if self.unit_column is None else [self.unit_column])]
            grid = without(with_levels(without(grid, left_out), self.categories, where, private=True), left_out)
            names = [named(name) for name in grid.column_names or ()]
            unasked = set(names) if self.nodes == "common" else set(level_nodes(self.categories or {}))
            known = [name for name in names if name in nodes or name not in unasked]
            check_same_names(known, nodes, where, "the columns of `fit`", _SAME_COLUMNS)
            grid = Grid([grid.columns[names.index(node)] for node in nodes], nodes)
        if len(grid.columns) != len(nodes):
            raise InputError(where, f"{len(nodes)} columns, as in `fit`", f"it has {len(grid.columns)}")

        def place(column: int, row: int) -> str:
            return f"{where}, column {nodes[column]}, {grid.at(row)}"

        return checked_values(grid.columns, place, private=True, gaps=True)

    def to_networkx(self, site: str | None = None, threshold: float = 0.0) -> Any:
        """Return the consensus graph, or the graph of `site`, as a networkx.Graph.

        Edges with weights at or below `threshold` are left out. Edge attributes are `weight` and, if known, `sign` and
        `probability`.
        """
        nodes, found = self._graph("to_networkx", site, threshold)
        return to_networkx(found, nodes)

    def to_pandas(self, site: str | None = None, threshold: float = 0.0) -> Any:
        """Return the edges of the consensus graph, or of the graph of `site`, as a DataFrame.

        Its columns are those of a run's CSV files: source, target, weight, and what else is known about an edge. Edges
        with weights at or below `threshold` are left out.
        """
        import pandas as pd

        _, found = self._graph("to_pandas", site, threshold)
        more = list(self._more_of_consensus if site is None else self._more[self.names_.index(site)])
        rows = [(edge.source, edge.target, edge.weight, *edge.more.values()) for edge in found]
        frame = pd.DataFrame(rows, columns=["source", "target", "weight", *more])
        return frame.astype({name: int for name in (SIGN, COULD_SEE) if name in more})

    def plot(self, site: str | None = None, ax: Any = None) -> Any:
        """Draw the consensus graph, or the graph of `site`, with matplotlib: on the axes `ax`, or on new ones.

        The axes are returned.
        """
        nodes, found = self._graph("plot", site, 0.0)
        signs = {frozenset((edge.source, edge.target)): int(edge.more.get(SIGN, 1)) for edge in found}
        drawn = [(edge.source, edge.target, edge.weight) for edge in found]
        return plot_graph(nodes, drawn, signs, "consensus" if site is None else site, ax)

    def _graph(self, where: str, site: str | None, threshold: float) -> tuple[Sequence[str], list[Edge]]:
        """Nodes and edges of the consensus graph, or of a site's."""
        check_is_fitted(self)
        if site is not None and not self._more:
            raise InputError(where, "the consensus", "sites have no graphs of their own", "Leave site out.")
        if site is not None and site not in self.names_:
            raise InputError(where, f"one of {', '.join(self.names_)}", f"found {site!r}")
        nodes: Sequence[str] = self.nodes_
        w, more = self._consensus, self._more_of_consensus
        if site is not None:
            k = self.names_.index(site)
            nodes, w, more = self._own_nodes[k], self._vectors[k], self._more[k]
        return nodes, list(edges(w, self.nodes_, threshold, self._space, more))

    def _matrices(self, vectors: Array) -> Any:
        """Symmetric matrices: sparse ones on candidate edges, else one array."""
        if isinstance(self._space, AllPairs):
            return np.stack([adjacency(w) for w in vectors])
        from scipy.sparse import coo_array

        ends, shape = self._space.ends(), (self._space.nodes, self._space.nodes)
        halves = [coo_array((w, ends), shape=shape).tocsr() for w in vectors]
        for half in halves:
            half.eliminate_zeros()
        return [half + half.T for half in halves]

    def _card(self) -> str:
        costs, nodes = worst(self.privacy_["guarantees"]), len(self.nodes_)
        found = list(edges(self._consensus, self.nodes_, 0.0, self._space, self._more_of_consensus))
        drawn = [(e.source, e.target, e.weight) for e in found]
        signs = {frozenset((e.source, e.target)): int(e.more[SIGN]) for e in found if SIGN in e.more}
        facts = [
            ("sites", len(self.names_)),
            ("nodes", nodes),
            ("consensus edges", len(drawn)),
            ("certified gap", self.gap_),
            ("rounds", self.n_iter_),
            *protected(self.privacy_),
        ]
        counts = [int((w > 0.0).sum()) for w in self._vectors] or [0] * len(self.names_)
        rows = [(s, n, 2 * n / nodes, *costs[s]) for s, n in zip(self.names_, counts, strict=True)]
        header = ("site", "edges", "mean degree", *COST)
        return card(repr(self), facts, header, rows, small_graph(self.nodes_, drawn, "Consensus graph", signs))

    def _silos(self, plan: GraphPlan, X: Any, names: Sequence[str] | None) -> Silos:
        if X is None or ((_are_named(X) or isinstance(X, list | tuple)) and not X):
            raise InputError("fit", "a table per site", "found none")
        private, data = plan.privacy is not None, plan.data
        self.__dict__.pop("feature_names_in_", None)
        self._loaded: Path | None = None
        self._named = bool(data.files) or hasattr(X, "columns")
        if data.files:
            if names is not None:
                raise InputError("names", "no names with files: files name the sites", f"found {list(names)}")
            silos = read_sites(plan, [Path(name) for name in data.files])
            self.n_features_in_ = len(silos.nodes)
            return silos
        columns: dict[str, Any] = {"drop": data.drop, "keep": data.keep, "categories": data.categories}
        columns |= {"rule": data.nodes or ("same" if private else "all"), "unit_column": data.unit_column}
        if data.site_column is not None:
            X = _by_site(X, data.site_column)
        if _are_named(X):
            X, names = list(X.values()), list(X) if names is None else names
        if _are_tables(X):
            self._named = any(hasattr(table, "columns") for table in X)
            silos = from_arrays(X, names, None, private, **columns)
            self.n_features_in_ = len(silos.nodes)
            return silos
        if as_frame(X) is not None:
            validate_data(self, X, skip_check_array=True)
            return from_arrays([X], names, None, private, **columns)
        table = validate_data(
            self, X, dtype="numeric", ensure_min_samples=2, ensure_min_features=3, ensure_all_finite="allow-nan"
        )
        return from_arrays([table], names, None, private, **columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _plan(self, X: Any) -> GraphPlan:
        privacy, seed = self._budget(Privacy, "delta", "clip", "mode"), seed_of(self.random_state)
        given = [X] if isinstance(X, str | Path) else X
        named = isinstance(given, list | tuple) and given and all(isinstance(path, str | Path) for path in given)
        data = self._section(Data, files=tuple(map(str, given)) if named else ())
        return GraphPlan(data, self._section(MethodPlan), privacy, seed=seed)


def _vectors_of(run: GraphRun, name: str | None, links: Sequence[Link]) -> tuple[Array, dict[str, Array]]:
    """A graph's weights for all pairs of nodes, and what is known of them besides."""
    place = {node: k for k, node in enumerate(run.result.nodes)}
    nodes = len(place)
    more = {}
    if run.sign_of[name]:
        more[SIGN] = np.zeros(edge_count(nodes))
    if run.confidence[name]:
        more[PROBABILITY if run.likely or run.voted else CONFIDENCE] = np.zeros(edge_count(nodes))
    w = np.zeros(edge_count(nodes))
    for source, target, weight in links:
        a, b = sorted((place[source], place[target]))
        k, pair = a * (2 * nodes - a - 1) // 2 + b - a - 1, frozenset((source, target))
        w[k] = weight
        for kind, values in more.items():
            values[k] = (run.sign_of if kind == SIGN else run.confidence)[name].get(pair, 0.0)
    return w, more


def _by_site(X: Any, column: str) -> dict[str, Any]:
    """A long table's rows by their site, in the order of the sites' names, without the column that names them."""
    frame = as_frame(X)
    if frame is None or column not in frame.columns:
        found = "found no DataFrame" if frame is None else f"its columns are {listed(list(map(str, frame.columns)))}"
        raise InputError("site_column", f"one DataFrame with a column {column!r}", found)
    if frame[column].isna().any():
        raise InputError(f"column {column!r}", "the name of a site in every row", "it is empty in some")
    return {str(name): part.drop(columns=column) for name, part in frame.groupby(column, sort=True)}


def _sure(w: Array, more: Mapping[str, Array], least: float | None) -> Array:
    """Weights of edges of which the run is at least so sure."""
    known = next((more[name] for name in (PROBABILITY, CONFIDENCE) if name in more), None)
    return w if least is None or known is None else np.where(known >= least, w, 0.0)


def _are_named(X: Any) -> bool:
    """Whether these are tables by their sites; some sparse matrices are mappings, too."""
    return isinstance(X, Mapping) and not hasattr(X, "shape")


def _are_tables(X: Any) -> bool:
    return isinstance(X, list | tuple) and bool(X) and (as_frame(X[0]) is not None or np.ndim(X[0]) == 2)


def _location(rows: Array) -> Array:
    """The mean of every node; NaN where the site lacks it."""
    seen = ~np.isnan(rows)
    with np.errstate(invalid="ignore"):
        return np.asarray(rows.mean(0) if seen.all() else np.where(seen, rows, 0.0).sum(0) / seen.sum(0))


def _common_location(location: Array, weights: Array) -> Array:
    """The mean over the sites that have a node, by their weights."""
    seen = ~np.isnan(location)
    return (
        (weights[None] @ location)[0] if seen.all() else pooled(np.where(seen, location, 0.0), weights[:, None] * seen)
    )


def _log_likelihood(rows: Array, location: Array, precision: Array) -> Array:
    """Of every row, under a Gaussian: of the values that it has."""
    apart, found = rows - location, np.zeros(len(rows))
    patterns, which = np.unique(np.isnan(rows), axis=0, return_inverse=True)
    for pattern, gone in enumerate(patterns):
        here, there = np.ix_(~gone, ~gone), np.ix_(~gone, gone)
        own = precision[here] - precision[there] @ np.linalg.solve(precision[np.ix_(gone, gone)], precision[there].T)
        those = which.ravel() == pattern
        distance = np.einsum("na,ab,nb->n", apart[those][:, ~gone], own, apart[those][:, ~gone], optimize=True)
        normal = np.linalg.slogdet(own)[1] - len(own) * math.log(2.0 * math.pi)
        found[those] = 0.5 * (normal - distance)
    return found
