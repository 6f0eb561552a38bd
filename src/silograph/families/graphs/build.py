"""From a plan and its tables to what will run: method, task, mechanism and budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.categories import level_nodes
from silograph.data.gaps import with_gaps
from silograph.data.silos import Silos
from silograph.data.tables import looks_like_identifier, shortened
from silograph.families.graphs.plan import (
    MOST_NODES_LIKELIHOOD,
    MOST_NODES_WITHOUT_VOTES,
    ConsensusGraph,
    GraphPlan,
    Privacy,
    learner_of,
    no_private_scale,
    papers_only,
    private_scale_fits,
)
from silograph.families.graphs.units import units_of
from silograph.families.graphs.voting import check_no_votes, check_people, voting
from silograph.kernels.edges import edge_count
from silograph.kernels.own_nodes import own_of
from silograph.kernels.spaces import EdgeList
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.base import Method
from silograph.methods.behind_noise import BehindNoise
from silograph.methods.consensus_graph import ExactConsensus
from silograph.methods.moments_once import FOLDS, LEAST_ROWS, JointLearner, MomentsOnce, MomentsSummed, parts
from silograph.methods.person_votes import ReleasedVotes
from silograph.methods.private_graph import LEAST_EFFECTIVE_ROWS, PATIENCE, Learner, LikelyGraphs, ReleasedConsensus
from silograph.methods.private_scale import ScaledFirst, share_needed, with_share
from silograph.methods.summed_graph import AddedUp, SmoothestGraph, SummedConsensus
from silograph.methods.unlike_sites import Lacks, UnlikeReleases, UnlikeSum
from silograph.privacy import accounting
from silograph.privacy.correlated import LEAST_HONEST, CorrelatedGaussian
from silograph.privacy.door import Budget
from silograph.privacy.masking import Masks, counted_on
from silograph.privacy.mechanisms import Gaussian, Laplace, Mechanism, SharedGaussian
from silograph.tasks.person_votes import PersonVotes
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import Topology, star

USUAL_RESAMPLES = 100
MOST_SHARE, MOST_SHARE_ASKED = 0.3, 0.5  # of the budget for private means and spreads; the latter if asked for
MOST_RESAMPLED = 10_000_000  # numbers a site keeps for them; 100 resamples of 440 nodes
# Local steps, step size and momentum of each paper's experiments.
PAPER_SETTINGS = {"S3": (5, 0.005, 0.9), "S0": (1, 0.01, 0.1)}


@dataclass(frozen=True)
class Setup:
    """Everything a run needs besides data and disk."""

    topo: Topology
    counts: tuple[int, ...]
    task: SmoothGraph | PersonVotes
    method: Method
    mechanism: Mechanism | None
    budget: Budget | None
    releases: int
    degree: float | None = None  # that was asked for or is usual; None where beta was given
    lacks: tuple[tuple[int, ...], ...] = ()  # the nodes that each site lacks, by its columns' names
    notes: tuple[str, ...] = ()  # what names and numbers, which are public, ask for
    masks: Masks | None = None
    scale_share: float | None = None  # of the budget, for private means and spreads; None where there are none
    learner_why: str | None = None  # where another learner than the usual one was taken, though nobody named it

    @property
    def learning(self) -> Method:
        """The method that learns, without what comes before it."""
        return self.method.inner if isinstance(self.method, ScaledFirst) else self.method

    @property
    def most_rounds(self) -> int:
        method = self.method
        if isinstance(method, ScaledFirst):
            return 3 * PATIENCE
        if isinstance(method, ReleasedConsensus | MomentsOnce | AddedUp | ReleasedVotes):
            return PATIENCE  # a silo is asked again while the server waits for others
        if isinstance(method, PaperConsensus):  # a round more where the parameters are chosen first
            return method.rounds + (None in (method.beta, method.nu, method.lam))
        assert isinstance(method, ExactConsensus)
        return method.rounds


def default_degree(nodes: int) -> float:
    return min(6.0, (nodes - 1) / 2.0)


def _resamples(chosen: ConsensusGraph, edges: int) -> int:
    """How often signals are resampled; by default the usual number if that needs little memory, else never."""
    if chosen.solver != "exact":
        return 0
    return (
        USUAL_RESAMPLES * (USUAL_RESAMPLES * edges <= MOST_RESAMPLED) if chosen.resamples is None else chosen.resamples
    )


def build(plan: GraphPlan, silos: Silos, candidates: EdgeList | None = None, coordinates: Array | None = None) -> Setup:
    """Check the plan against the data's shape and put the parts together. Nothing private is looked at."""
    setup = _build(plan, silos, candidates, coordinates)
    return replace(setup, lacks=silos.lacked(setup.topo.silos))


def _build(plan: GraphPlan, silos: Silos, candidates: EdgeList | None, coordinates: Array | None) -> Setup:
    nodes = len(silos.nodes)
    topo = star(silos.names)
    counts = tuple(len(silos.signals[silos.names.index(name)]) for name in topo.silos)
    chosen = plan.method
    wanted = chosen.wanted_degree(nodes)
    degree = default_degree(nodes) if chosen.beta is None and wanted is None else wanted
    most = nodes - 1.0 if candidates is None else 2.0 * candidates.size / nodes
    if degree is not None and degree > most:
        if wanted is not None:
            raise _too_many_edges(chosen, nodes, candidates)
        degree = most
    if plan.privacy is None and learner_of(plan, nodes) == "likelihood":
        return _open(chosen, nodes, topo, counts, with_gaps(silos))
    if plan.privacy is None:
        listed = candidates is not None and chosen.solver == "exact"
        again = _resamples(chosen, candidates.size if candidates is not None else nodes * (nodes - 1) // 2)
        task = SmoothGraph(nodes, "listed-distances" if listed else "distances", None, candidates, resamples=again)
        lacks = silos.lacked(topo.silos)
        method = _solver(chosen, nodes, degree, candidates=candidates if listed else None, lacks=lacks)
        return Setup(topo, counts, task, method, None, None, 0, degree, learner_why=_why_papers(plan, nodes))
    if learner_of(plan, nodes) == "votes":
        assert degree is not None, "votes have no beta"
        check_people(silos)
        setup = _voted(plan, plan.privacy, nodes, degree, topo, counts, coordinates)
    else:
        check_no_votes(plan)
        setup = _private(plan, plan.privacy, nodes, degree, candidates, topo, counts, silos.lacked(topo.silos))
        if isinstance(setup.method, ScaledFirst):
            setup = replace(setup, method=replace(setup.method, binary=_binary(plan, silos.nodes)))
    return replace(setup, notes=tuple(_questions(silos.nodes)))


def _too_many_edges(chosen: ConsensusGraph, nodes: int, candidates: EdgeList | None) -> InputError:
    """The error of more edges than there can be, in the words in which they were asked for."""
    most = edge_count(nodes) if candidates is None else candidates.size
    limits = {"edges": most, "degree": 2.0 * most / nodes, "density": most / edge_count(nodes)}
    name = next(name for name in limits if getattr(chosen, name) is not None)
    pairs = f"pairs of {nodes} nodes" if candidates is None else "candidates"
    expected = f"at most {limits[name]:g}: then all {pairs} are edges"
    return InputError(wording.setting(name), expected, f"found {getattr(chosen, name):g}")


def _binary(plan: GraphPlan, nodes: Sequence[str]) -> tuple[int, ...]:
    levels = level_nodes(plan.data.categories or {})
    return tuple(k for k, name in enumerate(nodes) if name in levels)


def _open(chosen: ConsensusGraph, nodes: int, topo: Topology, counts: tuple[int, ...], gaps: bool) -> Setup:
    """One exchange of second moments, or their secure sum; the server learns."""
    share = chosen.consensus_density
    learner = JointLearner(
        chosen.edges,
        chosen.degree,
        chosen.density,
        None if share is None else round(share * edge_count(nodes)),
        chosen.choose_by or "expected-F",
        bool(chosen.nonnegative),
        chosen.device or "cpu",
    )
    for name, count in zip(topo.silos, counts, strict=True):
        least = 2 * FOLDS if chosen.choose_by == "held-out" else LEAST_ROWS
        if count < least:
            todo = "Leave the site out." if least == LEAST_ROWS else "Choose by expected-F."
            raise InputError(f"site {shortened(name)}", f"at least {least} signals", f"it has {count}", todo)
    if chosen.reveal == "sum":
        masks = Masks()
        if len(counts) < masks.minimum:
            expected = f"at least {masks.minimum} sites, the fewest whose sum may be known"
            raise InputError(wording.setting("reveal"), expected, f"found {len(counts)}", "Reveal moments.")
        task = SmoothGraph(nodes, "correlations")
        summed = MomentsSummed(nodes, counts, learner)
        return Setup(topo, counts, task, summed, None, None, 0, chosen.wanted_degree(nodes), masks=masks)
    folds = FOLDS if chosen.choose_by == "held-out" else parts(nodes, counts)
    task = SmoothGraph(nodes, "second-moments", folds=folds, gaps=gaps)
    once = MomentsOnce(nodes, counts, learner, folds, gaps)
    return Setup(topo, counts, task, once, None, None, 0, chosen.wanted_degree(nodes))


def _why_papers(plan: GraphPlan, nodes: int) -> str | None:
    """Why the likelihood was not used although no other learner was named."""
    if plan.method.learner is not None:
        return None
    if given := papers_only(plan):
        return f"{given} is a setting that only the papers' model has"
    return f"the likelihood is slow beyond {MOST_NODES_LIKELIHOOD} nodes and there are {nodes}; --learner likelihood"


def _questions(nodes: Sequence[str]) -> Iterator[str]:
    """Ask about columns that look like names of persons: protecting single rows of a person protects nobody."""
    for name in nodes:
        if looks_like_identifier(name):
            yield (
                f"Does the column {shortened(name)} say whose a signal is? It was taken for a node, and one signal is "
                f"protected, not a person with several. Name it with --unit-column, or unit_column in the plan."
            )


def _private(
    plan: GraphPlan,
    privacy: Privacy,
    nodes: int,
    degree: float | None,
    candidates: EdgeList | None,
    topo: Topology,
    counts: tuple[int, ...],
    lacks: Lacks,
) -> Setup:
    chosen, delta = plan.method, privacy.total_delta
    _check_units_are_known(plan, privacy)
    for name, count in zip(topo.silos, counts, strict=True):
        accounting.check_budget(privacy.epsilon, delta, count, f"site {name}")
    if privacy.mode == "secure-sum":
        return _summed(plan, privacy, nodes, degree, candidates, topo, counts, lacks)
    if privacy.mode != "per-round":
        mechanism = _once(privacy, topo)
        task = _moment(plan, privacy, nodes, candidates, lacks)
        _enough_records(privacy, nodes, counts, effective_rows_together(task, counts, mechanism))
        inner, shrink = _likely(plan, nodes)
        made = task, inner or _solver(chosen, nodes, degree), mechanism, counts, shrink
        method = UnlikeReleases(*made, lacks=lacks) if lacks else ReleasedConsensus(*made)
        return _scaled_first(plan, Setup(topo, counts, task, method, mechanism, Budget(privacy.epsilon, delta), 1))
    else:
        # One local step releases clipped distances; several clip gradients instead, and need no other clip.
        single = _local_steps(chosen, "S0") == 1
        clipped = SmoothGraph(nodes, "clipped-distances", privacy.clip) if single else SmoothGraph(nodes)
        paper = _solver(chosen, nodes, degree, clipped, None if single else privacy.clip)
        assert isinstance(paper, PaperConsensus)
        releases = paper.rounds
        assert paper.release is not None
        task = paper.release
        mechanism = Gaussian(accounting.gaussian_multiplier(privacy.epsilon, delta, releases))
    return Setup(topo, counts, task, paper, mechanism, Budget(privacy.epsilon, delta), releases)


def _check_units_are_known(plan: GraphPlan, privacy: Privacy) -> None:
    """Refuse raw columns that nothing can scale: edges would follow the size of units. A clip says that they are
    known."""
    missing = no_private_scale(plan)
    if plan.data.scale is None and privacy.clip is None and missing is not None:
        expected, found, _ = missing
        modes = " or ".join(wording.option("mode", mode) for mode in ("one-release", "secure-sum"))
        todo = f"Nothing was spent. Take {modes} with Gaussian noise. {_public_units()}"
        raise InputError(wording.setting("scale"), expected, found, todo)


def _public_units() -> str:
    return (
        f"Or give public column,centre,spread ({wording.option('scale', 'FILE.csv')}). Or say that all columns have "
        f"one unit and vary around 0 ({wording.option('scale', 'none')}); otherwise edges would follow their units."
    )


def _scaled_first(plan: GraphPlan, setup: Setup) -> Setup:
    """Spend a share of the budget on private means and spreads, if these are wanted; too few rows are an error."""
    method, asked = setup.method, plan.data.scale == "private"
    if not (asked or private_scale_fits(plan)):
        return setup
    assert isinstance(method, ReleasedConsensus | SummedConsensus)
    most = MOST_SHARE_ASKED if asked else MOST_SHARE
    share = share_needed(method, most)
    if share > most:
        raise _too_few_to_scale(plan, setup, share, most)
    scaled = with_share(method, share)
    return replace(setup, method=scaled, mechanism=scaled.inner.mechanism, releases=3, scale_share=share)


def _too_few_to_scale(plan: GraphPlan, setup: Setup, share: float, most: float) -> InputError:
    """The error of raw columns with too few rows to scale them: units would decide the graph. It says what helps."""
    assert plan.privacy is not None
    method, todo = setup.method, ["Nothing was spent."]
    multiplier = accounting.gaussian_multiplier(plan.privacy.epsilon, plan.privacy.total_delta, 1)
    if isinstance(method, ReleasedConsensus) and len(setup.counts) >= Masks().minimum:
        made = method.task, LikelyGraphs(), SharedGaussian(multiplier), setup.counts
        lacks = method.lacks if isinstance(method, UnlikeReleases) else ()
        if share_needed(UnlikeSum(*made, lacks=lacks) if lacks else SummedConsensus(*made), MOST_SHARE) <= MOST_SHARE:
            summing = wording.option("mode", "secure-sum")
            todo.append(f"With {summing} the rows are enough (a consensus, no graphs of sites).")
    if math.isfinite(share):  # noise is as 1 / mu, and the share that is needed as its square
        enough = accounting.gaussian_epsilon(math.sqrt(share / MOST_SHARE) / multiplier, plan.privacy.total_delta)
        todo.append(f"An epsilon of about {enough:.2g} is enough.")
    todo.append(_public_units())
    return InputError(
        wording.setting("scale"),
        f"enough rows for private means and spreads of columns with {100 * most:.0f} % of the budget",
        f"found {sum(setup.counts)} of {len(setup.counts)} sites",
        " ".join(todo),
    )


def _moment(plan: GraphPlan, privacy: Privacy, nodes: int, candidates: EdgeList | None, lacks: Lacks) -> SmoothGraph:
    common = tuple(np.flatnonzero(own_of(lacks, nodes).all(0)).tolist()) if lacks else None
    # One centre for all sites is the centre of none; as they are, columns vary around 0, or so somebody said.
    with_mean = units_of(plan, nodes) != "none"
    return SmoothGraph(
        nodes, "moment", privacy.clip, candidates, plan.data.unit_column, common=common, with_mean=with_mean
    )


def _likely(plan: GraphPlan, nodes: int) -> tuple[Learner | None, bool]:
    """The likelihood of what was released, or None for the papers' model; and whether eigenvalues are shrunk anyway."""
    wanted, learner = plan.method.wanted_degree(nodes), learner_of(plan, nodes)
    if learner == "likelihood":
        truest = BehindNoise(wanted, default_degree(nodes), plan.method.nonnegative)
        return truest, truest.shrinks(nodes)
    return LikelyGraphs(wanted) if learner == "log-det" else None, False


def _once(privacy: Privacy, topo: Topology) -> Mechanism:
    """Noise of a single release that spends the budget."""
    if privacy.mechanism == "laplace":
        return Laplace(accounting.laplace_multiplier(privacy.epsilon, 1))
    multiplier = accounting.gaussian_multiplier(privacy.epsilon, privacy.total_delta, 1)
    if privacy.mode != "correlated":
        return Gaussian(multiplier)
    honest = counted_on(len(topo.silos))
    if honest < LEAST_HONEST:
        raise _too_few(topo, f"five sites or more, so that {LEAST_HONEST} can be counted on")
    return CorrelatedGaussian(multiplier, (topo.silos,), honest)


def _too_few(topo: Topology, expected: str) -> InputError:
    return InputError(wording.setting("mode"), expected, f"found {len(topo.silos)}", "Use the mode 'one-release'.")


def effective_rows_together(task: SmoothGraph, counts: tuple[int, ...], mechanism: Mechanism) -> float:
    """Effective rows of all silos' releases at the most, from public numbers alone."""
    if not isinstance(mechanism, CorrelatedGaussian):
        return sum(effective_rows(task, count, mechanism) for count in counts)
    # In the sum over silos, in units of their sensitivities, only the own noise is left.
    total = math.sqrt(mechanism.covariance(np.ones(len(counts)), task.moment_size).sum())
    return _effective(task, sum(counts), math.sqrt(2.0) / sum(counts) * total)


def _summed(
    plan: GraphPlan,
    privacy: Privacy,
    nodes: int,
    degree: float | None,
    candidates: EdgeList | None,
    topo: Topology,
    counts: tuple[int, ...],
    lacks: Lacks,
) -> Setup:
    """All sites are one cohort, whose moments are added up under masks."""
    chosen, masks = plan.method, Masks()
    if len(counts) < masks.minimum:
        raise _too_few(topo, f"at least {masks.minimum} sites, the fewest whose sum may be known")
    mechanism = SharedGaussian(accounting.gaussian_multiplier(privacy.epsilon, privacy.total_delta, 1))
    task = _moment(plan, privacy, nodes, candidates, lacks)
    smoothest = SmoothestGraph(chosen.alpha, chosen.beta, chosen.zeta or 0.0, degree)
    inner, shrink = _likely(plan, nodes)
    made = task, inner or smoothest, mechanism, counts, shrink
    method = UnlikeSum(*made, lacks=lacks) if lacks else SummedConsensus(*made)
    _enough_records(privacy, nodes, counts, effective_rows_of_sum(method))
    budget = Budget(privacy.epsilon, privacy.total_delta)
    return _scaled_first(plan, Setup(topo, counts, task, method, mechanism, budget, 1, masks=masks))


def _voted(
    plan: GraphPlan,
    privacy: Privacy,
    nodes: int,
    degree: float,
    topo: Topology,
    counts: tuple[int, ...],
    coordinates: Array | None,
) -> Setup:
    """Each person votes for the edges of its own graph."""
    for name, count in zip(topo.silos, counts, strict=True):
        accounting.check_budget(privacy.epsilon, privacy.total_delta, count, f"site {name}")
    made = voting(plan, privacy, nodes, degree, topo, counts, coordinates)
    why = None
    if plan.method.learner is None:
        why = (
            f"persons are protected and {nodes} nodes are more than {MOST_NODES_WITHOUT_VOTES}; --learner names another"
        )
        why = why if plan.data.group_column is None else "groups of persons are compared by their votes"
    budget = Budget(privacy.epsilon, privacy.total_delta)
    method, masks = made.method, made.masks
    return Setup(topo, counts, method.task, method, made.mechanism, budget, 1, degree, masks=masks, learner_why=why)


def _solver(
    chosen: ConsensusGraph,
    nodes: int,
    degree: float | None,
    release: SmoothGraph | None = None,
    gradient_clip: float | None = None,
    candidates: EdgeList | None = None,
    lacks: tuple[tuple[int, ...], ...] = (),
) -> Method:
    if chosen.solver == "exact":
        return ExactConsensus(
            nodes,
            alpha=chosen.alpha,
            beta=chosen.beta,
            nu=chosen.nu,
            lam=chosen.lam,
            zeta=chosen.zeta or 0.0,
            degree=degree,
            tolerance=chosen.tolerance,
            rounds=2000 if chosen.rounds is None else chosen.rounds,
            consensus_edges=_consensus_edges(chosen, nodes, candidates),
            candidates=candidates,
            lacks=lacks,
        )
    form = chosen.form or ("S3" if release is None else "S0")
    _, step, momentum = PAPER_SETTINGS[form]
    return PaperConsensus(
        nodes,
        alpha=chosen.alpha,
        beta=chosen.beta,
        nu=chosen.nu,
        lam=chosen.lam,
        zeta=1e-4 if chosen.zeta is None else chosen.zeta,
        degree=degree,
        step=step if chosen.step is None else chosen.step,
        momentum=momentum if chosen.momentum is None else chosen.momentum,
        local_steps=_local_steps(chosen, form),
        rounds=50 if chosen.rounds is None else chosen.rounds,
        form=form,
        implicit=chosen.coupling == "implicit",
        release=release,
        gradient_clip=gradient_clip,
    )


def _consensus_edges(chosen: ConsensusGraph, nodes: int, candidates: EdgeList | None) -> float | None:
    if chosen.consensus_density is None:
        return None
    wanted = chosen.consensus_density * nodes * (nodes - 1) / 2
    if candidates is not None and wanted > candidates.size:
        most = f"at most {2 * candidates.size / (nodes * (nodes - 1)):.2g}, the density of all candidates"
        raise InputError(wording.setting("consensus_density"), most, f"found {chosen.consensus_density:g}")
    return wanted


def _local_steps(chosen: ConsensusGraph, form: str) -> int:
    return PAPER_SETTINGS[chosen.form or form][0] if chosen.local_steps is None else chosen.local_steps


def effective_rows(task: SmoothGraph, count: int, mechanism: Mechanism) -> float:
    """An upper estimate, from public numbers alone, of the effective rows of a release of N records."""
    return _effective(task, count, mechanism.deviation(math.sqrt(2.0) / count, task.moment_size))


def effective_rows_of_sum(method: SummedConsensus) -> float:
    """The same of a sum, if everybody is in it."""
    silos, records = len(method.counts), sum(method.counts)
    return _effective(method.task, records, method.noise(silos, silos) / (records * method.task.radius**2))


def _effective(task: SmoothGraph, count: int, noise: float) -> float:
    """N_eff = (t^2 + |P|^2) / (D V) with trace t = 1, |P|^2 about 1/m and V >= s^2, the noise per coordinate."""
    coordinates = edge_count(task.dimensions + 1)
    return min(float(count), task.kept**2 / (coordinates * noise**2))


def _enough_records(privacy: Privacy, nodes: int, counts: tuple[int, ...], total: float) -> None:
    """Refuse before anything is spent where even all silos together, with `total` effective rows, cannot carry a
    graph."""
    if total < LEAST_EFFECTIVE_ROWS:
        factor = math.sqrt(LEAST_EFFECTIVE_ROWS / max(total, 1e-300))
        raise InputError(
            f"privacy of {nodes} nodes at epsilon {privacy.epsilon:g}",
            f"at least {LEAST_EFFECTIVE_ROWS:.0f} effective rows after the noise",
            f"all {len(counts)} sites with {sum(counts)} signals have {total:.2g}: the graph would be chance",
            f"Nothing was spent. Use about {factor:.1f} times as many signals, or a larger epsilon.",
        )
