"""The plan of consensus graphs: tables of signals, which learner, a budget for every site."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import EngineName
from silograph.data.categories import Categories
from silograph.families.graphs.plan_checks import check_data, check_method, check_unit_column
from silograph.families.graphs.who_votes import adds_up, check_groups, no_votes
from silograph.run.plan import DEFAULT_DELTA, Plan
from silograph.run.sections import naming_files, option, public

MOST_NODES_LIKELIHOOD = 2000  # 5 sites take 8 s of one core at 1000 nodes and 45 s at 2000; beyond, ask for it
MOST_NODES_WITHOUT_VOTES = 50  # beyond, noise on second moments leaves little where a person is protected

PAPERS = "The papers' model (--learner papers)"  # where the help shows settings that only it has


@dataclass(frozen=True)
class Data:
    """Where the silos' tables are, relative to the plan file, and how to read them."""

    files: tuple[str, ...] = naming_files(())
    nodes_in: Literal["columns", "rows"] = option("columns", "Where the nodes are in the tables.")
    standardise: bool = option(False, "The older name of --scale own.")
    scale: str | None = naming_files(
        None,
        words=("own", "private", "none"),
        help="own: each site scales its nodes to mean 0 and deviation 1 (default of the papers' model without "
        "privacy); private: a share of the budget pays for means and spreads (default with privacy if there are enough "
        "rows); none: nodes stay as they are; or a CSV with columns column,centre,spread that are public knowledge.",
    )
    nodes: Literal["all", "common", "same"] | None = option(
        None,
        "If sites have different nodes: take all nodes (default without privacy), only those common to every site, or "
        "refuse (same; default with privacy).",
    )
    candidates: str | None = naming_files(
        None, help="CSV with columns source,target: the only edges allowed; a public list.", panel=PAPERS
    )
    neighbours: int | None = option(
        None,
        "Only edges from a node to this many nearest neighbours at some site (beyond 3000 nodes: twice the degree).",
        panel=PAPERS,
    )
    search: Literal["exact", "approximate"] | None = option(
        None, "How to search for neighbours; required beyond 30000 nodes.", panel=PAPERS
    )
    unit_column: str | None = option(
        None, "The column that says whose a signal is: protects a person with all signals, instead of one signal."
    )
    group_column: str | None = option(
        None, "The column that names each person's group; finds the edges in which two groups differ (votes)."
    )
    groups: tuple[str, ...] = option((), "A group, as that column names it; give it twice.", option="group")
    drop: tuple[str, ...] = option((), "Leave this column out, at every site that has it; may be repeated.")
    keep: tuple[str, ...] = option(
        (), "Keep this column: it is a measurement, whatever it looks like; may be repeated."
    )
    categories: Categories | None = option(
        None,
        "Columns of words and all their levels, 'sex=f,m;ward=a,b,c': each level but the first becomes a node of 0 "
        "and 1.",
    )
    site_column: str | None = option(None, "In one long table of all sites: the column that names a row's site.")
    coordinates: str | None = naming_files(
        None,
        private=False,
        help="CSV with columns node,x,y and optionally z: where the nodes are, a public list; for drawing. Votes also "
        "take near nodes for likelier to be joined.",
    )


@dataclass(frozen=True)
class ConsensusGraph:
    """How graphs are learned. `degree`, `density` and `edges` say the same: how many edges a site's graph has.

    likelihood   signed precision graphs of all sites together, from one exchange of second moments; with privacy the
                 truest one of several likelihoods of what was released (`methods/behind_noise.py`)
    papers       S3 (8) and S0 (8). What is left out is chosen: beta for the degree, lam for `consensus_density`, nu as
                 `coupling_by` says, the rest from the scale of the data. It was called log-degree before.
    log-det      the likelihood of Gaussian signals with positive relations after one private release, at any size
    votes        each person votes for as many edges of its own graph as `degree` says; the votes are what is protected
    """

    name: Literal["consensus_graph"] = "consensus_graph"
    learner: Literal["likelihood", "papers", "log-det", "votes", "log-degree"] | None = option(
        None,
        "likelihood: of all sites together, or with privacy of what was released (default; without privacy up to 2000 "
        "nodes); papers: the papers' model (8); log-det: the private likelihood of positive relations only; votes: "
        "persons vote for edges (default with privacy and a unit column, beyond 50 nodes).",
    )
    reveal: Literal["moments", "sum"] | None = option(
        None,
        "What sites reveal for the likelihood: each its second moments (default), or only the secure sum of all sites' "
        "correlations (a consensus, no graphs of sites).",
    )
    choose_by: Literal["expected-F", "ebic", "held-out"] | None = option(
        None, "How the likelihood chooses the number of edges (default: by the expected F-score)."
    )
    nonnegative: bool | None = option(
        None,
        "Only positive relations, or both signs (likelihood; with privacy and --scale none chosen automatically).",
        option="nonnegative/--signed",
    )
    device: Literal["cpu", "cuda"] | None = option(
        None, "Where to compute the likelihood: on the CPU, or on a GPU for thousands of nodes (needs PyTorch)."
    )
    confidence: float | None = option(None, "Draw only edges with at least this probability (or confidence).")
    solver: Literal["exact", "paper"] = option("exact", "The exact optimum, or the papers' Algorithm 1.", panel=PAPERS)
    degree: float | None = option(None, "Wanted mean degree of the sites' graphs.")
    density: float | None = option(
        None, "Wanted edges of a site's graph, as a share of all pairs of nodes; instead of a degree."
    )
    edges: int | None = option(None, "Wanted number of edges of a site's graph; instead of a degree.")
    consensus_density: float | None = option(None, "Wanted share of all pairs in the consensus graph.")
    coupling_by: Literal["rule", "held-out"] = option(
        "rule",
        "How to choose how strongly sites are held together: by a rule, or by the loss on signals held out.",
        panel=PAPERS,
    )
    resamples: int | None = option(
        None,
        "How often to resample the signals, to say how sure an edge is (default: 100, or 0 for very large graphs).",
        panel=PAPERS,
    )
    alpha: float = option(1.0, "Weight of the log-degree term of (8).", panel=PAPERS)
    beta: float | None = option(
        None, "Weight of the squared term of (8); a larger one gives denser graphs.", panel=PAPERS
    )
    nu: float | None = option(None, "Weight of the coupling to the consensus in (8), in units of lam.", panel=PAPERS)
    lam: float | None = option(
        None, "Weight of the consensus's own edges in (8); a larger one gives a sparser consensus.", panel=PAPERS
    )
    zeta: float | None = option(None, "Guard added to degrees inside the logarithm.", panel=PAPERS)
    threshold: float = option(0.0, "Leave out edges with weights at or below this.")
    tolerance: float = 1e-7
    rounds: int | None = option(None, "Maximum number of rounds (exact), or number of rounds (paper).", panel=PAPERS)
    form: Literal["S3", "S0"] | None = option(None, "Which paper's form of Algorithm 1.", panel=PAPERS)
    local_steps: int | None = option(None, "Local steps per round (paper).", panel=PAPERS)
    step: float | None = option(None, "Step size (paper).", panel=PAPERS)
    momentum: float | None = option(None, "Momentum (paper).", panel=PAPERS)
    coupling: Literal["implicit", "explicit"] = option("implicit", "Coupling step (paper).", panel=PAPERS)

    def wanted_degree(self, nodes: int) -> float | None:
        """The mean degree that was asked for, in whichever words."""
        if self.density is not None:
            return self.density * (nodes - 1)
        return 2.0 * self.edges / nodes if self.edges is not None else self.degree


@dataclass(frozen=True)
class Privacy:
    """The total budget of every silo, and how it is spent."""

    epsilon: float = field(metadata={"help": "Total privacy budget of every site."})
    delta: float | None = option(None, "Delta of the budget (default: 1e-6).")
    mode: Literal["one-release", "correlated", "secure-sum", "per-round"] | None = option(
        None,
        "one-release: each site releases once (default); correlated: the same, with noise that cancels between sites; "
        "secure-sum: noise once, on the secure sum of all sites (a consensus, no graphs of sites; default if persons "
        "vote); per-round: the papers' noise in every round.",
        option="privacy",
    )
    mechanism: Literal["gaussian", "laplace"] = option("gaussian", "Shape of the noise.")
    clip: float | None = option(
        None,
        "Public bound on a signal's length around its mean (default: scale every length to 1); with per-round noise, a "
        "bound on its squared differences, or on gradients if there are several local steps.",
    )

    @property
    def total_delta(self) -> float:
        if self.mechanism == "laplace":
            return 0.0
        return DEFAULT_DELTA if self.delta is None else self.delta


@dataclass(frozen=True)
class GraphPlan(Plan):
    data: Data
    method: ConsensusGraph = ConsensusGraph()
    privacy: Privacy | None = None
    topology: Literal["star"] = "star"
    engine: EngineName = option("vector", "How to simulate the silos.")
    seed: int | None = option(None, "Fixes every random number (a rehearsal, under privacy).")

    @property
    def total_delta(self) -> float:
        return 0.0 if self.privacy is None else self.privacy.total_delta

    def deployable(self) -> Self:
        """Organisations agree on what they send by its name, not by what a default was."""
        if learner_of(self) == "papers" and self.privacy is None and not (self.data.scale or self.data.standardise):
            return replace(self, data=replace(self.data, scale="own"))
        if self.privacy is not None or learner_of(self) != "likelihood":
            return self
        return replace(self, method=replace(self.method, learner="likelihood"))

    def spelled_out(self, columns: int, organisations: int) -> Self:
        if self.privacy is None or learner_of(self, columns) != "votes":
            return self
        mode: Literal["secure-sum", "one-release"] = (
            "secure-sum" if adds_up(self.privacy, organisations) else "one-release"
        )
        method = replace(self.method, learner="votes")
        return replace(self, method=method, privacy=replace(self.privacy, mode=mode))

    def __post_init__(self) -> None:
        if self.privacy is not None and self.privacy.mode is None and not may_vote(self):
            object.__setattr__(self, "privacy", replace(self.privacy, mode="one-release"))
        check_method(self.method)
        if self.privacy is not None:
            _check_privacy(self.privacy, self.method)
            if self.privacy.mode == "per-round" and self.data.candidates is not None:
                raise InputError(
                    wording.setting("candidates"), "one release with candidate edges", "found noise in every round"
                )
            if self.data.standardise or self.data.scale == "own":
                raise InputError(
                    wording.setting("standardise" if self.data.standardise else "scale"),
                    "data as they are, or scaled by public constants, with privacy",
                    "standardising was asked for: it reads every signal in the clear, and no ledger counts that",
                    f"Add {wording.option('scale', 'private')}: a share of the budget pays for means and spreads. Or "
                    "name a CSV file with column,centre,spread that do not come from the tables: "
                    f"{wording.option('scale', 'FILE.csv')}.",
                )
        if self.data.scale == "private" and (missing := no_private_scale(self)):
            raise InputError(wording.setting("scale"), *missing)
        _check_learner(self)
        check_unit_column(self)
        check_groups(self.data, self.method.learner)
        check_data(self)
        if self.seed is not None and self.seed < 0:
            raise InputError(wording.setting("seed"), "a whole number from 0 up", f"found {self.seed}")


def private_scale_fits(plan: GraphPlan) -> bool:
    """Whether columns get private means and spreads though nobody asked for them, if there are rows enough. A clip says
    how long signals are as they stand."""
    private = plan.privacy
    return plan.data.scale is None and private is not None and private.clip is None and no_private_scale(plan) is None


def no_private_scale(plan: GraphPlan) -> tuple[str, str, str] | None:
    """What keeps columns from private means and spreads: expected, found, what to do."""
    private = plan.privacy
    if private is None:
        todo = f"Use {wording.option('scale', 'own')}, or add an epsilon."
        return "a privacy budget for private means and spreads", "found none", todo
    if private.mode in ("per-round", "correlated") or private.mechanism != "gaussian":
        found = f"found {private.mode}" if private.mechanism == "gaussian" else f"found {private.mechanism} noise"
        modes = f"{wording.option('mode', 'one-release')} or {wording.option('mode', 'secure-sum')}"
        scale = wording.option("scale", "FILE.csv")
        todo = f"Take {modes} with Gaussian noise, or name public constants: {scale}."
        return "Gaussian noise in one release, or on a secure sum, for private means and spreads", found, todo
    if plan.method.learner == "votes":
        return "no scale for votes, which are of correlations", "found private", "Leave it out: units do not matter."
    return None


def _check_learner(plan: GraphPlan) -> None:
    method, private = plan.method, plan.privacy
    if private is None and method.learner == "log-det":
        raise InputError(
            wording.setting("learner"), "one private release for log-det", "found no privacy", "Take 'likelihood'."
        )
    if private is not None and method.learner in ("log-det", "likelihood") and private.mode == "per-round":
        raise InputError(
            wording.setting("learner"), f"one private release for {method.learner}", "found noise in every round"
        )
    if method.learner == "log-det" and (given := papers_only(plan)):
        raise InputError(wording.setting(given), "the learner 'papers'", "log-det has no such setting")
    if method.learner == "likelihood" and (given := papers_only(plan)):
        raise InputError(wording.setting(given), "the learner 'papers'", "likelihood has no such setting")
    if private is not None and method.nonnegative is False and plan.data.candidates is not None:
        raise InputError(
            wording.setting("nonnegative"), "no list of candidates with relations of both signs", "found one"
        )
    if private is not None and (given := open_only(method)):
        todo = f"With privacy sites send one noisy release, or a noisy sum: {wording.option('mode', 'secure-sum')}."
        raise InputError(wording.setting(given), "no privacy", "privacy was asked for", todo)
    if (given := likelihood_only(method)) and learner_of(plan) != "likelihood":
        why = f"{papers_only(plan) or 'learner'} asks for another"
        raise InputError(wording.setting(given), "the learner 'likelihood'", why)
    if method.choose_by is not None and method.wanted_degree(2) is not None:
        todo = "Leave one out: the number of edges is given, or it is chosen."
        raise InputError(
            wording.setting("choose_by"), "no degree, density or edges, which it chooses", "found both", todo
        )
    if method.learner == "votes" and (missing := _no_votes(plan)):
        raise InputError(wording.setting("learner"), *missing)
    if method.confidence is not None and private is not None and not may_vote(plan):
        raise InputError(
            wording.setting("confidence"), "none with privacy", "found it: a private graph states none for its edges"
        )
    if method.confidence is not None and method.resamples == 0:
        raise InputError(wording.setting("confidence"), "resamples, which say how sure an edge is", "found 0")
    if method.reveal == "sum":
        for name in ("consensus_density", "choose_by"):
            if getattr(method, name) not in (None, "expected-F", "ebic"):
                todo = "The sum gives one graph and has no parts of rows: use density, or choose by expected-F or ebic."
                raise InputError(wording.setting(name), "moments of every site for this setting", "found a sum", todo)


def may_vote(plan: GraphPlan) -> bool:
    """Whether persons vote where there are many nodes: no setting asks for anything else."""
    return plan.method.learner in (None, "votes") and _no_votes(plan) is None and papers_only(plan) is None


def _no_votes(plan: GraphPlan) -> tuple[str, str, str] | None:
    """What keeps persons from voting: expected, found, what to do."""
    if plan.method.learner == "votes" and plan.privacy is not None and (given := papers_only(plan)):
        return f"no {given}, which only the papers' model has, for votes", "found it", "Leave it out."
    return no_votes(plan.privacy, plan.data)


def learner_of(plan: GraphPlan, nodes: int = 0) -> Literal["likelihood", "papers", "log-det", "votes"]:
    """What learns: the one that was asked for, or the one that has the settings that were given and is fast enough."""
    asked = plan.method.learner
    if asked is not None:
        return "papers" if asked == "log-degree" else asked
    if papers_only(plan) is not None:
        return "papers"
    if plan.privacy is None:
        return "likelihood" if nodes <= MOST_NODES_LIKELIHOOD or likelihood_only(plan.method) else "papers"
    if (nodes > MOST_NODES_WITHOUT_VOTES or plan.data.group_column is not None) and may_vote(plan):
        return "votes"
    return "papers" if plan.privacy.mode == "per-round" else "likelihood"


def papers_only(plan: GraphPlan) -> str | None:
    """The first setting that only the papers' model has, as it is called in plans."""
    plain = ConsensusGraph()
    names = ["solver", "alpha", "beta", "nu", "lam", "zeta", "rounds"]
    names += ["consensus_density"] if plan.privacy is not None else ["coupling_by", "resamples", "tolerance"]
    given = (public(name) for name in names if getattr(plan.method, name) != getattr(plain, name))
    if plan.privacy is not None:
        return next(given, None)
    lists = (name for name in ("candidates", "neighbours") if getattr(plan.data, name) is not None)
    raw = "scale none" if plan.data.scale == "none" else None
    return next(given, None) or next(lists, None) or raw


OPEN_ONLY = ("reveal", "choose_by", "device")


def likelihood_only(method: ConsensusGraph) -> str | None:
    return open_only(method) or ("nonnegative" if method.nonnegative is not None else None)


def open_only(method: ConsensusGraph) -> str | None:
    """The first setting of the likelihood that has no meaning with privacy."""
    return next((name for name in OPEN_ONLY if getattr(method, name) is not None), None)


def _check_privacy(privacy: Privacy, method: ConsensusGraph) -> None:
    if not (math.isfinite(privacy.epsilon) and privacy.epsilon > 0.0):
        raise InputError(
            wording.setting("epsilon"),
            "a privacy budget above 0",
            f"found {privacy.epsilon}",
            "Leave it out for a run without privacy.",
        )
    if privacy.delta is not None and not 0.0 < privacy.delta < 1.0:
        raise InputError(wording.setting("delta"), "a number between 0 and 1", f"found {privacy.delta}", "Try 1e-6.")
    if privacy.mechanism == "laplace" and privacy.delta is not None:
        raise InputError(
            wording.setting("delta"), "no delta with Laplace noise, whose delta is 0", f"found {privacy.delta}"
        )
    if privacy.clip is not None and not 1e-70 <= privacy.clip <= 1e70:
        raise InputError(wording.setting("clip"), "a number above 0 whose powers are numbers", f"found {privacy.clip}")
    if privacy.mode in ("correlated", "secure-sum") and privacy.mechanism != "gaussian":
        raise InputError(
            wording.setting("mechanism"), f"gaussian in the mode {privacy.mode}", f"found {privacy.mechanism}"
        )
    if privacy.mode == "secure-sum" and method.consensus_density is not None:
        todo = "Use density: there is only one graph."
        raise InputError(wording.setting("consensus_density"), "none with a secure sum", "found one", todo)
    if privacy.mode == "secure-sum":
        plain = ConsensusGraph()
        for name in ("solver", "nu", "lam", "rounds"):
            if getattr(method, name) != getattr(plain, name):
                todo = "There are no graphs of sites that it could couple to a consensus."
                raise InputError(
                    wording.setting(public(name)), "one release for this setting", "found a secure sum", todo
                )
    if privacy.mode == "per-round":
        if method.solver != "paper":
            raise InputError(
                wording.setting("mode"), "the solver 'paper' for noise in every round", "found the exact solver"
            )
        if privacy.mechanism != "gaussian":
            raise InputError(
                wording.setting("mechanism"), "gaussian for noise in every round", f"found {privacy.mechanism}"
            )
        missing = [public(name) for name in ("beta", "nu", "lam") if getattr(method, name) is None]
        missing += ["clip"] if privacy.clip is None else []
        if missing:
            raise InputError(
                wording.settings(),
                "numbers for beta, nu, lambda and clip with noise in every round",
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
                "Choosing them on the private data would itself be a release; the mode 'one-release' chooses for free.",
            )


PLAN = GraphPlan
