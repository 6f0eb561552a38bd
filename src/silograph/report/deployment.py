"""The page in a deployment's folder: what to type, what leaves a party's machine, what it costs, what was agreed.

A pure function of deployment.json and of what the plan will cost: no party learns from it what the others do not.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from silograph.core.toml import parse_toml
from silograph.core.types import Json
from silograph.report.page import render
from silograph.report.words import bound, counted, first_seen, listed, number

_OBSERVERS = {
    "server": "the server’s operator",
    "own server": "the own server, which the operator runs",
    "neighbour": "servers of other units",
    "another agent": "agents of other parties",
    "other sites": "the other parties",
    "wire": "whoever reads the network",
    "public": "whoever gets the results",
}


@dataclass(frozen=True)
class Leaving:
    """One thing that a party sends: `size` numbers, or as the words say; `open` where nothing protects it."""

    what: str
    size: str
    when: str
    how: str
    open: bool = False


def page(told: Json, digest: str, forecast: Json, party: str | None) -> str:
    """The page of one party, or of the server's operator (None), from the deployment as JSON and its forecast."""
    plan = parse_toml(told["plan"], "deployment, plan")
    kind = _Kind(plan, told["facts"])
    guarantees = [row for row in forecast["guarantees"] if party is None or _is_of(party, row["site"])]
    parties = [each["name"] for each in told["facts"]["parties"]]
    return render(
        "deployment.html.j2",
        party=party,
        folder="server" if party is None else party,
        parties=parties,
        held=[each for each in told["facts"]["parties"] if party in (None, each["name"])],
        terms=told["terms"],
        run=told["run"],
        digest=digest,
        seed=plan.get("seed"),
        plan=told["plan"],
        files=sorted(told["files"]),
        extras="flower,neural" if kind.name == "private_meta" else "flower",
        command=_Commands(party, _tables(plan, parties).get(party or "")),
        kind=kind,
        verdict=_verdict(kind, guarantees),
        guarantees=_grouped(guarantees, len({row["site"] for row in forecast["guarantees"]})),
        worth=[row for row in forecast["sites"] if "effective_records" in row and party in (None, row["site"])],
        notes=forecast["notes"],
    )


def _is_of(party: str, site: str) -> bool:
    """Whether a guarantee is about this party: itself, its clients, or its cells."""
    return site == party or site.startswith(f"{party}/")


def _tables(plan: Json, parties: Iterable[str]) -> dict[str, str]:
    """The table of every party, as the plan calls it: a party has its table's name, without what says the format."""
    longest_first = sorted(parties, key=len, reverse=True)
    named = ((next((p for p in longest_first if name.startswith(f"{p}.")), ""), name) for name in plan["data"]["files"])
    return dict(named)


@dataclass(frozen=True)
class _Commands:
    """What is typed where the folder lies; names stand as a shell needs them."""

    party: str | None
    table: str | None

    def __call__(self, verb: str, *more: str) -> str:
        return shlex.join(["silograph", verb, "server" if self.party is None else self.party, *more])

    @property
    def data(self) -> tuple[str, str]:
        return "--data", self.table or "TABLE"

    def path(self, *parts: str) -> str:
        """A path inside the folder."""
        return shlex.quote("/".join(["server" if self.party is None else self.party, *parts]))


# ---- what is learned, and what that takes ----------------------------------------------------------------------------


class _Kind:
    """What a plan says, in words."""

    def __init__(self, plan: Json, facts: Json) -> None:
        self._facts = facts
        self._method: Json = plan["method"]
        self._privacy: Json = plan.get("privacy", {})
        self.name: str = self._method["name"]
        self.private = bool(self._privacy)
        #: What neighbours differ in, where they do not differ in a record.
        self.persons = "unit_column" in plan["data"]
        self.seeded = self.private and "seed" in plan

    @property
    def masked(self) -> bool:
        default = "protocol" if self.private and self.name == "graph_federation" else "none"
        if self._privacy.get("mode") == "secure-sum":
            return True
        return bool(self._method.get("masks", default) != "none")

    @property
    def _protects_clients(self) -> bool:
        return self.private and (self.name == "graph_federation" or self._privacy.get("protect") == "clients")

    @property
    def trusting(self) -> bool:
        """Whether noise is the own server's affair."""
        return self._protects_clients and not self.masked

    @property
    def enforced(self) -> bool:
        """Whether a party's own machine refuses what would cost more than the budget."""
        return self.private and not self.trusting and self._method.get("version") != "paper:"

    @property
    def smallest_sum(self) -> int:
        return int(self._method.get("minimum", _FEWEST_IN_A_SUM)) if self.masked else 1

    @property
    def agents(self) -> bool:
        """Whether a party's table is of several agents."""
        return self.name in ("graph_federation", "clustered_admm")

    @property
    def one(self) -> str:
        return {"graph_federation": "agent", "clustered_admm": "client"}.get(self.name, "party")

    @property
    def goal(self) -> str:
        return {
            "consensus_graph": f"a graph of {counted(len(self._facts['columns']), 'node')} for "
            + ("all parties together" if self.masked else "every party, and one for all"),
            "graph_federation": "a model for every unit of agents",
            "clustered_admm": "personal models for clients in clusters",
            "private_meta": "a shared start for personal models",
        }[self.name]

    @property
    def rounds(self) -> str:
        if self.name == "consensus_graph" and self.private and self._privacy.get("mode") != "per-round":
            return "one release"
        if self.name == "consensus_graph" and self._method["solver"] == "exact":
            return f"until solved, at most {number(self._method.get('rounds', 2000))}"
        return number(self._method.get("rounds", 50))  # what is left out is the papers'

    @property
    def unit(self) -> str:
        if self._protects_clients:
            return f"one {self.one}, with all its records"
        if self.persons:
            return "one person, with all signals of theirs"
        return "one signal (a row of a table)" if self.name == "consensus_graph" else "one record"

    @property
    def budget(self) -> str:
        """What the plan allows in all."""
        if not self.private:
            return "none"
        delta = 0.0 if self._privacy.get("mechanism") == "laplace" else self._privacy.get("delta", 1e-6)
        return f"ε = {bound(self._privacy['epsilon'])}" + (f", δ = {bound(delta)}" if delta else "")

    @property
    def counts_are_told(self) -> bool:
        return not self._protects_clients

    @property
    def kept(self) -> str:
        """What a party has for itself when the run is over."""
        if self.name == "clustered_admm":
            return "your clients’ models"
        return "your graph" if self.name == "consensus_graph" and self.rounds != "one release" else ""

    @property
    def hands_over(self) -> bool:
        """Whether the run can only end when all are there, with their results."""
        if self.name == "clustered_admm":
            return "clip" not in self._method or (self.private and not self._protects_clients)
        return self.name == "consensus_graph" and self.rounds != "one release"

    # ---- what leaves ----

    @property
    def leaving(self) -> list[Leaving]:
        rows = {
            "consensus_graph": self._of_graphs,
            "graph_federation": self._of_units,
            "clustered_admm": self._of_clusters,
            "private_meta": self._of_a_start,
        }[self.name]()
        checksum = "without a value; a checksum under a key that stays" if self.private else "a checksum of each value"
        ledger = Leaving("the new rows of the party’s ledger", "a few words each", "with every answer", checksum)
        return [*rows, ledger]

    @property
    def comes_back(self) -> str:
        """What the server tells parties in return."""
        if self.name == "consensus_graph" and self.rounds == "one release":
            return "nothing: the results are the operator’s to hand out"
        return {
            "consensus_graph": "the consensus graph and the parameters of the round",
            "graph_federation": "the model of their own unit",
            "clustered_admm": "the model of each client’s cluster at its server",
            "private_meta": "the shared start",
        }[self.name]

    @property
    def _each_round(self) -> str:
        return "in rounds for which it is sampled" if "sample" in self._method else "in every round"

    def _of_graphs(self) -> list[Leaving]:
        nodes = len(self._facts["columns"])
        pairs = f"{number(nodes * (nodes - 1) // 2)} numbers"
        if self.rounds == "one release":
            moment = "how strongly nodes vary together (the clipped second moment)"
            if self.masked:
                told = (
                    f"only under masks: the server learns the sum over at least {self.smallest_sum} parties, with noise"
                )
                return [Leaving(moment, pairs, "once", f"{told} that they put in themselves"), *self._of_masks()]
            return [Leaving(moment, pairs, "once; asked again it sends the same", "noise for the budget is in it")]
        if self.private:
            step = "the graph after this round’s step"
            return [Leaving(step, pairs, "in every round, the last again at the end", _NOISY)]
        rows = [
            Leaving("the party’s graph, or its pull at the consensus", pairs, self._each_round, _BARE, True),
            Leaving("how well the graph fits, and how dense it is", "7 numbers", self._each_round, _BARE, True),
            Leaving("the party’s graph as the result", pairs, "once, at the end", _BARE, True),
        ]
        return [*rows, Leaving("how smooth its signals are on it", "1 number", "once, at the end", _BARE, True)]

    @property
    def _features(self) -> str:
        return f"{number(len(self._facts['columns']) + self._method.get('intercept', True))} numbers of each {self.one}"

    @property
    def _handed_over(self) -> tuple[str, bool]:
        """How a vector goes to the own server, and whether it lies open there."""
        group = "unit" if self.name == "graph_federation" else "server and cluster"
        sum_of = f"only under masks: the server learns the sum over at least {self.smallest_sum} {self.one}s of a"
        if self.masked and self.private:
            return f"{sum_of} {group}, with noise that they put in themselves", False
        if self.masked:
            return f"{sum_of} {group}, as it is: no noise", True
        if self.private:
            return "clipped, and in the clear for the own server; others see it with noise only", True
        return _BARE, True

    def _of_units(self) -> list[Leaving]:
        what = f"how each {self.one} would move the model"
        return [Leaving(what, self._features, self._each_round, *self._handed_over), *self._of_masks()]

    def _of_masks(self) -> list[Leaving]:
        what = "keys of the round, sealed shares of them, signatures"
        told = "sealed for the other agents, or of no use alone"
        when = "once" if self.name == "consensus_graph" else "in every round"
        return [Leaving(what, "some for each other agent", when, told)] if self.masked else []

    def _of_clusters(self) -> list[Leaving]:
        rows = []
        if "find" in self._method:
            how = (_NOISY, False) if self.private else (_BARE, True)
            rows.append(Leaving("the mean gradient at zero, to find clusters", self._features, "once, first", *how))
        if self.private and not self._protects_clients:
            when = f"{self._each_round}, the last again at the end"
            return [*rows, Leaving("each client’s model", self._features, when, _NOISY)]
        what = "how far each client’s model is from its cluster’s"
        rows.append(Leaving(what, self._features, self._each_round, *self._handed_over))
        if self.hands_over:
            rows.append(Leaving("each client’s model as the result", self._features, "once, at the end", _BARE, True))
        return [*rows, *self._of_masks()]

    def _of_a_start(self) -> list[Leaving]:
        noisy = ("computed from nothing but sums with noise, for a share of the budget", False)
        how = noisy if self.private else (_BARE, True)
        return [Leaving("the start, moved by the party’s own steps", self._network, self._each_round, *how)]

    @property
    def _network(self) -> str:
        """How many parameters a network has, where that is easily said."""
        model, classes = self._method["model"], self._facts["classes"]
        if model not in ("linear", "mlp"):
            return f"as many numbers as the {model} has parameters"
        hidden = self._method["hidden"] if model == "mlp" else []
        layers = [math.prod(self._facts["shape"]), *hidden, len(classes) or 1]
        return f"{number(sum((before + 1) * after for before, after in pairwise(layers)))} numbers"


_FEWEST_IN_A_SUM = 3  # parties, where a plan says nothing
_BARE = "as it is: no protection"
_NOISY = "noise for a share of the budget is in it"


# ---- what it costs ---------------------------------------------------------------------------------------------------


def _verdict(kind: _Kind, guarantees: Sequence[Json]) -> tuple[str, str, str]:
    """A class of the style sheet, a label, and a sentence or two."""
    finite = [row for row in guarantees if row["epsilon"] != "infinity"]
    if not finite:
        bare = "The plan has no privacy budget: ε is infinite against everybody."
        masked = f" Masks hide what each {kind.one} sends from the server, and not the sums that come of it."
        return "none", "No protection", bare + (masked if kind.masked else "")
    epsilon = bound(max(row["epsilon"] for row in finite))
    delta = bound(max(row["delta"] or 0.0 for row in finite))
    promise = f"at most ε = {epsilon} at δ = {delta} over the whole run about {kind.unit}"
    if kind.seeded:
        return (
            "none",
            "Rehearsal: no protection",
            f"The noise comes from the seed in the plan, which everybody with deployment.json knows: whoever knows it "
            f"can take the noise off. Without a seed the same plan would give away {promise}. Take no real records.",
        )
    if len(finite) < len(guarantees):
        bare = listed(_people(row["observer"] for row in guarantees if row["epsilon"] == "infinity"))
        return "partial", "Private in part", f"Against {bare} there is no protection. Others learn {promise}."
    return "full", "Private", f"Whoever sees what leaves learns {promise}."


def _people(observers: Iterable[str]) -> list[str]:
    return [_OBSERVERS.get(name, name) for name in first_seen(observers)]


def _grouped(guarantees: Sequence[Json], everybody: int) -> list[Json]:
    """One row for each cost, with whom it is about and against whom it holds."""
    observers: dict[tuple[str, str], list[str]] = {}
    for row in guarantees:
        observers.setdefault((row["site"], _price(row)), []).append(row["observer"])
    sites: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (site, price), against in observers.items():
        sites.setdefault((price, tuple(against)), []).append(site)
    return [
        {
            "sites": f"all {everybody}" if len(names) == everybody > 1 else listed(names, most=6),
            "price": price,
            "against": listed(_people(against)),
        }
        for (price, against), names in sites.items()
    ]


def _price(row: Json) -> str:
    if row["epsilon"] == "infinity":
        return ""
    return f"ε = {bound(row['epsilon'])}" + (f" at δ = {bound(row['delta'])}" if row["delta"] else "")
