"""A finished run, opened again: its numbers, its graphs, its ledger."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from silograph.core.errors import InputError
from silograph.core.results import Label
from silograph.core.toml import parse_toml
from silograph.core.types import Array, BoolArray, Json
from silograph.data.categories import labels_of, second_of
from silograph.data.features import as_learned, numbers, scaled
from silograph.data.tables import listed
from silograph.families.servers import INTERCEPT
from silograph.report.build import read
from silograph.report.notebook_card import COST, card, protected, small_graph, worst
from silograph.report.plots import plot_graph
from silograph.report.read import Edge
from silograph.run.plan import parse


@dataclass(frozen=True)
class FinishedRun:
    """The contents of a finished run's folder.

    Attributes
    ----------
    folder : The run folder.
    result : The numbers of result.json.
    ledger : A row for everything that left a site.
    plan : The text of the plan file.
    edges : If graphs were learned: the edges of the consensus, by the name "consensus", and of every site.
    signs : If relations have signs: for every graph, 1 or -1 for every pair of nodes that is joined.
    known : What else is known of the edges of a graph, by column, in their order.
    models : If linear models were learned: the weights of each, by its region, client ("server/client") or cluster.

    Examples
    --------
    >>> import silograph
    >>> x = np.random.default_rng(0).normal(size=(40, 20, 3))
    >>> agents = [(each, np.where(each[:, 0] > each[:, 1], 1, 0)) for each in x]
    >>> silograph.RegionModels("logistic").fit(agents, regions=["north", "south"] * 20).save("models")
    >>> run = silograph.open_run("models")
    >>> list(run.models)
    ['north', 'south', 'centroid']
    >>> run.predict([[2.0, -2.0, 0.0]], "north"), run.predict_proba([[2.0, -2.0, 0.0]], "north").round(2)
    (array([1]), array([[0., 1.]]))
    >>> run.score(*agents[0], "north") > 0.9
    True
    >>> silograph.ConsensusGraph(edges=1).fit(x[0] + x[0, :, :1]).save("graphs")
    >>> run = silograph.open_run("graphs")
    >>> list(run.graphs), run.graph("site_0").number_of_edges()
    (['consensus', 'site_0'], 1)
    >>> run.to_pandas()[["source", "target", "sign"]]
       source  target  sign
    0  node_0  node_1     1
    >>> axes = run.plot()
    """

    folder: Path
    result: Json = field(repr=False)
    ledger: list[Json] = field(repr=False)
    plan: str = field(repr=False)
    edges: dict[str, list[Edge]] = field(repr=False)
    signs: dict[str, dict[frozenset[str], int]] = field(default_factory=dict, repr=False)
    known: dict[str, dict[str, list[float]]] = field(default_factory=dict, repr=False)
    models: dict[str, list[float]] = field(default_factory=dict, repr=False)

    @property
    def graphs(self) -> dict[str, Any]:
        """Every graph as a networkx.Graph, by its name: "consensus", or a site's name.

        The edge attributes are `weight` and, if relations have signs, `sign`.
        """
        return {name: self.graph(name) for name in self.edges}

    def graph(self, name: str = "consensus") -> Any:
        """Return the consensus graph, or the graph of the site `name`, as a networkx.Graph like those of `graphs`."""
        import networkx as nx

        self._check(name)
        made = nx.Graph()
        made.add_nodes_from(self.result["nodes"])
        made.add_weighted_edges_from(self.edges[name])
        signs = {tuple(pair): {"sign": sign} for pair, sign in self.signs.get(name, {}).items()}
        nx.set_edge_attributes(made, signs)
        return made

    def _check(self, name: str) -> None:
        if name not in self.edges:
            known = ", ".join(self.edges) or "no graph: this run learned models"
            raise InputError("graph", f"one of {known}", f"found {name!r}")

    def to_pandas(self, name: str = "consensus") -> Any:
        """Return the edges of the graph `name` as a DataFrame with the columns of its CSV file.

        These are source, target, weight, and what else is known about an edge.
        """
        import pandas as pd

        self._check(name)
        frame = pd.DataFrame(self.edges[name], columns=["source", "target", "weight"])
        return frame.assign(**self.known.get(name, {}))

    def plot(self, name: str = "consensus", ax: Any = None) -> Any:
        """Draw the graph `name` with matplotlib on the axes `ax`, or new ones; return them."""
        nodes = list(self.graph(name).nodes)
        return plot_graph(nodes, self.edges[name], self.signs.get(name, {}), name, ax)

    def predict(self, X: Any, who: str) -> Any:
        """Predict the answers of the records `X` with one linear model: numbers, or with the logistic loss `labels`.

        `who` is a name in `models`. Columns of a DataFrame are matched by name; other columns are ignored. An array has
        the features in the order of the models' weights.
        """
        margins = self._margins(X, who)
        return np.array(self.labels)[(margins >= 0.0).astype(int)] if self._logistic else margins

    def predict_proba(self, X: Any, who: str) -> Any:
        """Predict the probabilities of the two `labels` for the records `X` with the model `who`.

        The result has the shape (records, 2). It needs a run with the logistic loss.
        """
        if not self._logistic:
            found = f"its loss is {self.result.get('task', {}).get('loss')}"
            raise InputError("predict_proba", "a run with the logistic loss", found, "Use predict.")
        chance = expit(self._margins(X, who))
        return np.column_stack([1.0 - chance, chance])

    def score(self, X: Any, y: Any, who: str) -> float:
        """Score the model `who` on records `X` and answers `y`.

        The score is the accuracy with the logistic loss (answers are `labels`), else R^2.
        """
        import pandas as pd

        margins = self._margins(X, who)
        if np.shape(y) != margins.shape:
            expected = f"an answer for each of the {len(margins)} records"
            raise InputError("score, answers", expected, f"found shape {np.shape(y)}", "Pass a list of answers.")
        if self._logistic:
            return float(((margins >= 0.0) == self.second(y, "score, answers")).mean())
        answers = numbers(pd.DataFrame({"answer": y}), ["answer"])[:, 0]
        return float(1.0 - ((answers - margins) ** 2).sum() / ((answers - answers.mean()) ** 2).sum())

    @property
    def labels(self) -> tuple[Label, Label]:
        """The two classes of a logistic run, the negative one first; 0 and 1 if the labels in the tables are not public
        or were elsewhere."""
        if told := self.result["task"].get("labels"):
            return told[0], told[1]
        classes = self._data.classes  # early versions wrote no labels
        return (0, 1) if classes is None else labels_of(classes)

    def second(self, answers: Any, where: str) -> BoolArray:
        """Return which answers are the second of the two `labels`; `where` names the answers in errors."""
        return second_of(answers, self.labels, where)

    @property
    def _logistic(self) -> bool:
        return bool(self.result.get("task", {}).get("loss") == "logistic")

    def _margins(self, X: Any, who: str) -> Array:
        if not self.models:
            raise InputError("predict", "a run that learned linear models", f"this one learned {self.result['method']}")
        if who not in self.models:
            raise InputError("predict", f"one of {listed(list(self.models))}", f"found {who!r}")
        model, names = np.array(self.models[who]), list(self.result["task"]["features"])
        features = [name for name in names if name != INTERCEPT]
        if hasattr(X, "columns"):
            X = as_learned(X, self._data)
            if missing := [name for name in features if name not in X.columns]:
                found = f"it lacks {listed(missing)}"
                raise InputError("records", "the columns it was learned from", found, "Name them alike.")
            X = numbers(X, features)
        x = np.array(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(features):
            raise InputError("records", f"records of {len(features)} features", f"found shape {x.shape}")
        bad = np.argwhere(~np.isfinite(x))
        if bad.size:
            raise InputError(f"record {bad[0][0] + 1}, {features[bad[0][1]]}", "a number", "it is missing")
        x = scaled(x, features, self._data.bounds)
        constant = model[names.index(INTERCEPT)] if INTERCEPT in names else 0.0
        return np.asarray(np.einsum("nm,m->n", x, model[: len(features)]) + constant)

    @property
    def _data(self) -> Any:
        """What the plan says of columns: records to predict have them as they were in the tables."""
        where = str(self.folder / "plan.toml")
        return parse(parse_toml(self.plan, where), where, to_run=False).data

    def _repr_html_(self) -> str:
        result, costs = self.result, worst(self.result["privacy"]["guarantees"])
        facts = [
            ("method", result["method"]),
            ("sites", len(costs)),
            ("rounds", result["rounds"]),
            ("certified gap", result.get("certified_gap")),
            *protected(result["privacy"]),
        ]
        counts = {site["name"]: site["edges"] for site in result.get("sites", ())}
        header = ("site", *(["edges"] if counts else []), *COST)
        rows = [(site, *([counts.get(site)] if counts else []), *cost) for site, cost in costs.items()]
        consensus = self.edges.get("consensus")
        drawn = (
            ""
            if consensus is None
            else small_graph(result["nodes"], consensus, "Consensus graph", self.signs.get("consensus"))
        )
        return card(f"silograph run {self.folder.name}", facts, header, rows, drawn)


def open_run(folder: str | Path) -> FinishedRun:
    """Read and check `folder`, of a finished run that the command line, a deployment or `save` wrote.

    Examples
    --------
    >>> import numpy as np
    >>> import silograph
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> x[:, 1] += x[:, 0]
    >>> silograph.ConsensusGraph(edges=1).fit({"north": x}).save("out")
    >>> run = silograph.open_run("out")
    >>> list(run.graphs), list(run.graph().edges)
    (['consensus', 'north'], [('node_0', 'node_1')])
    >>> run.result["method"], len(run.ledger)
    ('consensus_graph', 1)
    """
    run = read(folder)
    result = run.json | {"privacy": asdict(run.result.privacy)}
    return FinishedRun(Path(folder), result, run.ledger, run.plan, run.graphs, run.signs, run.known, run.models)
