"""Attack a plan through its own pipeline and gate, and compare the findings with its promise.

A trial is a pair of runs of the plan's method, one without the canary and one with it, with the same noise and through
the real gate. The releases then answer two questions.

    Is there another way out? The round is computed again from each of the two worlds, with a gate that returns the
    releases of the first time. All messages must then be the same to the last bit: they may depend on the releases and
    on nothing else. A message that differs leaks regardless of noise, and epsilon is infinite.

    How much do the releases reveal? The likelihood ratio of the two worlds, over all rows that the observer may see, is
    the best possible score. Many trials give a lower bound on epsilon, with its confidence.

A family's `canary` makes the two worlds, `stages` defines what is played with them, and `trials` plays it. The promise
is the plan's budget or the cost of its ledger, whichever is less. If a plan claims no epsilon, attacks on its messages
are shown instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from silograph.audit.exposure import exposure
from silograph.audit.finding import CANARY, PAIR, Finding
from silograph.audit.parts import stages_of
from silograph.audit.stages import RegionStage, Stage, at_scene
from silograph.audit.trials import Played, play
from silograph.core.errors import InputError
from silograph.core.keys import secret_root
from silograph.core.types import Array, BoolArray
from silograph.privacy.accounting import GAUSSIANS, NOTHING, Cost, LedgerCurves, cost
from silograph.privacy.attacks.bounds import (
    Bound,
    by_pairs,
    by_samples,
    by_threshold,
    threshold_trials,
    told_apart,
)
from silograph.privacy.attacks.one_run import by_alignment, by_guesses, clearest
from silograph.privacy.attacks.scores import fitted
from silograph.privacy.door import Budget
from silograph.privacy.ledger import Row
from silograph.privacy.observers import hidden_from
from silograph.report.audits import CONFIDENCE
from silograph.run.jobs import Job, open_job
from silograph.run.plan import load

Observer = Literal["server", "neighbour", "wire", "public"]
OBSERVERS: tuple[Observer, ...] = ("server", "neighbour", "wire", "public")

LOSS = "Clopper-Pearson by the loss of the canary under the last model that was sent"

LEAST_RUNS = 200
_TUNING = 0.2  # of the trials choose threshold and distinguisher; the others are judged
_RELEASES, _MOST_RUNS = 50_000, 10_000  # in either world of an audit, unless the number of trials is given
_AT_ONCE = 2_000_000  # numbers of one release in memory at a time
_REGIONS_AT_ONCE = 200  # servers of trials; their mixing is a matrix
_GLANCE, _CLEARLY = 20, 1.3  # trials of each scene, and how much further apart its worlds must be to be chosen
_DIFFERENT = 0.9  # of the trials have different scores, otherwise noise came more than once

#: Called with the share of the work done.
Progress = Callable[[float], None]


def audit(
    plan: Path,
    observer: Observer | None = None,
    runs: int | None = None,
    one_run: bool = False,
    root: int | None = None,
    progress: Progress = lambda share: None,
) -> Finding:
    """Attack the plan's promise to `observer`; None: the strongest observer with a promise."""
    return audit_job(open_job(load(plan), plan.parent), observer, runs, one_run, root, progress)


def audit_job(
    job: Job,
    observer: Observer | None = None,
    runs: int | None = None,
    one_run: bool = False,
    root: int | None = None,
    progress: Progress = lambda share: None,
) -> Finding:
    """Attack a job in the same way. `runs` trials, each in both worlds; `root` fixes every random number, for tests.

    Of several stages the one that reveals most is shown; they share the allowed chance to err.
    """
    if runs is not None and (runs < LEAST_RUNS or one_run):
        expected = f"{LEAST_RUNS} or more, or a single run"
        raise InputError("audit, runs", expected, f"found {runs}" + " with a single run" * one_run)
    stages, root = stages_of(job, many=one_run), secret_root() if root is None else root
    first = play(stages[0], np.array([[False], [True]]), root)
    rows = _rows_of_all(stages, first, root)
    claimed = [each for each in OBSERVERS if _promise(job, stages[0], rows, each).claimed]
    against: Observer = observer or (claimed or OBSERVERS)[0]
    promise = _promise(job, stages[0], rows, against)
    if not promise.claimed:
        return replace(promise, attacks=tuple(exposure(job, against, root)))
    if math.isinf(promise.accounted.epsilon):
        what = next(row.release_point for row in rows if row.mechanism == "reveal")
        return replace(promise, leak=f"what is sent at {what!r} leaves without protection, though the plan promises it")
    enough = default_runs(stages, first, promise)
    confidence = 1.0 - (1.0 - CONFIDENCE) / len(stages)
    found: list[Finding] = []
    for k, kind in enumerate(stages):
        seen_by = root + k * _MOST_RUNS, hidden_from(against), confidence
        trials = _Trials(kind, *seen_by) if one_run else _worst_scene(kind, *seen_by)
        stage = trials.stage
        start = replace(promise, site=stage.site, protected_unit=_protected_unit(rows, stage), canary=stage.canary)

        def share(done: float, before: int = k) -> None:
            progress((before + done) / len(stages))

        if one_run:
            fit = all(row.mechanism in GAUSSIANS for row in rows)
            found.append(_in_one_run(start, trials, enough, stage.most if fit else stage.distinct or stage.most))
        else:
            found.append(_in_many(start, trials, runs or enough, share))
    return max(found, key=lambda finding: finding.epsilon_lower)


def _rows_of_all(stages: Sequence[Stage], first: Played, root: int) -> list[Row]:
    """The rows of a run with releases split among the stages, or played by all: each release once."""
    rows = list(first.rows)
    for stage in stages[1:]:
        known = {(row.round, row.release_point) for row in rows}
        more = play(stage, np.array([[False], [True]]), root).rows
        rows += [row for row in more if (row.round, row.release_point) not in known]
    return rows


def against_coalition(stage: RegionStage, delta: float, runs: int, root: int) -> float:
    """Bound the epsilon that so many trials show if only `stage.honest` agents keep their noise to themselves: to
    compare with the statement of `families.federation.coalitions`."""
    pairs, leak = _Trials(stage, root, frozenset(), CONFIDENCE).pairs(runs, lambda done: None)
    if leak is not None:
        return math.inf
    tuning = int(_TUNING * runs)  # for scores that are not normal
    cut, held = pairs.scores[:, :tuning], pairs.scores[:, tuning:]
    return (by_pairs(pairs.scores, delta, CONFIDENCE) or by_threshold(cut, held, delta, CONFIDENCE)).epsilon


def _worst_scene(stage: Stage, root: int, hidden: frozenset[str], confidence: float) -> _Trials:
    """The scene in which a canary reveals most, by a few trials that are not judged: silent neighbours, unless it is
    clearly more among others. If something leaks, the scene of the leak."""
    found, most = _Trials(stage, root, hidden, confidence), 0.0
    for k, scene in enumerate((None, *stage.scenes)):
        trials = replace(found, stage=stage if scene is None else at_scene(stage, scene))
        pairs, leak = replace(trials, root=root - (k + 1) * _MOST_RUNS).pairs(_GLANCE, lambda done: None)
        if leak is not None:
            return trials
        spread = max(float(pairs.scores.std(1).max()), 1e-300)
        apart = float((pairs.scores[1] - pairs.scores[0]).mean()) / spread
        if apart > _CLEARLY * most:
            found, most = trials, max(apart, 1e-300)
    return found


def default_runs(stages: Sequence[Stage], first: Played, promise: Finding) -> int:
    """The default number of trials: ten thousand for a single release, fewer for long runs, about a minute on two
    cores. If only the bounds without assumptions apply, as many as could show more than is promised, up to ten
    thousand."""
    releases = len(first.rows) * stages[0].drawing * len(stages)
    fits = min((stage.most_trials for stage in stages if stage.most_trials is not None), default=_MOST_RUNS)
    runs = max(LEAST_RUNS, min(_MOST_RUNS, fits, _RELEASES // releases))
    if _all_gaussian(first.rows) or first.samples:
        return runs
    return max(runs, min(_MOST_RUNS, _runs_to_refute(promise, CONFIDENCE) or _MOST_RUNS))


def _runs_to_refute(promise: Finding, confidence: float) -> int | None:
    judged = threshold_trials(promise.promised, promise.delta, confidence)
    if judged is None:
        return None
    runs = max(LEAST_RUNS, int(judged / (1.0 - _TUNING)) - 2)
    while runs - int(_TUNING * runs) < judged:
        runs += 1
    return runs


def _all_gaussian(rows: Sequence[Row]) -> bool:
    return all(row.mechanism in GAUSSIANS and row.sampling == 1.0 for row in rows)


def _promise(job: Job, stage: Stage, rows: Sequence[Row], observer: Observer) -> Finding:
    """The promise to an observer: the ledger of a trial has the same rows as that of the plan's own run, and the budget
    is the plan's promise to all except those it trusts."""
    budget: Budget | None = job.budget
    if budget is not None and budget.trusted - hidden_from(observer):
        budget = None
    delta = job.plan.total_delta
    spent = cost([row for row in rows if row.observer not in hidden_from(observer)], delta)
    if math.isfinite(spent.epsilon) and spent.accountant != NOTHING:
        delta = spent.delta  # none, if the noise needs none
    return Finding(
        observer,
        stage.site,
        _protected_unit(rows, stage),
        stage.canary,
        Cost(spent.epsilon, spent.delta, spent.accountant),
        None if budget is None else budget.epsilon,
        delta,
        job.mechanism is not None and job.plan.seed is not None,
    )


def _protected_unit(rows: Sequence[Row], stage: Stage) -> str:
    return next((row.protected_unit for row in rows if row.protected_unit and row.part in ("", stage.part)), "none")


# ---- how much it tells -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Trials:
    """How the trials of a stage are played, and the confidence with which they are judged."""

    stage: Stage
    root: int
    hidden: frozenset[str]
    confidence: float

    def pairs(self, runs: int, progress: Progress) -> tuple[_Pairs, str | None]:
        """Play so many pairs, as many at once as memory allows; return them and the place of a leak."""
        done, parts, size = 0, [], 40  # type: int, list[tuple[Played, Played]], int
        while done < runs:
            size = min(size, runs - done)
            # Every call has its own root, so that no two pairs share any noise, and the two runs of a pair do.
            both = tuple(self._world(bit, size, len(parts)) for bit in (False, True))
            parts.append(both)  # type: ignore[arg-type]
            done += size
            for played in both:
                if played.leak is not None:
                    return _Pairs.of(parts), played.leak
            progress(done / runs)
            widest = max(row.dim for row in both[0].rows)
            most = _REGIONS_AT_ONCE if isinstance(self.stage, RegionStage) else 1000
            size = max(20, min(most, _AT_ONCE // widest))
        return _Pairs.of(parts), None

    def _world(self, bit: bool, size: int, part: int) -> Played:
        return play(self.stage, np.full((size, 1), bit), self.root + part, self.hidden)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Worlds by pairs: scores (2, n), features (2, n, k); for samples their places and how far apart the worlds are (2,
    n, k), and the coins of the second world (n, k); losses (2, n) if a model is sent."""

    rows: list[Row]
    scores: Array
    features: Array
    places: Array
    apart: Array
    coins: BoolArray
    losses: Array | None

    @classmethod
    def of(cls, parts: Sequence[tuple[Played, Played]]) -> _Pairs:
        def worlds(read: Callable[[Played], Array]) -> Array:
            return np.stack([np.concatenate([read(part[world]) for part in parts]) for world in (0, 1)])

        def columns(values: Sequence[Array | BoolArray], played: Played) -> Array:
            return np.array(values, dtype=np.float64).T if values else np.zeros((len(played.scores), 0))

        return cls(
            parts[0][0].rows,
            worlds(lambda played: played.scores[:, 0]),
            worlds(lambda played: columns(played.features, played)),
            worlds(lambda played: columns([sample.place for sample in played.samples], played)),
            worlds(lambda played: columns([sample.apart for sample in played.samples], played)),
            worlds(lambda played: columns([sample.coin for sample in played.samples], played))[1].astype(np.bool_),
            None if parts[0][0].losses is None else worlds(lambda played: np.asarray(played.losses)),
        )


def _in_many(finding: Finding, trials: _Trials, runs: int, progress: Progress) -> Finding:
    pairs, leak = trials.pairs(runs, progress)
    finding = replace(finding, trials=runs, trial=PAIR)
    leak = leak or _noise_twice(pairs)
    if leak is not None:
        return replace(finding, leak=leak)
    scores, delta, confidence = pairs.scores, finding.delta, trials.confidence
    tuning = int(_TUNING * runs)
    distinguisher = "likelihood ratio with the noise that the ledger states"
    gaussian = _all_gaussian(pairs.rows)
    if gaussian and _is_better_fitted(scores[:, :tuning], pairs.features[:, :tuning]):
        scores = pairs.features @ fitted(pairs.features[:, :tuning])
        distinguisher = (
            "likelihood ratio with the noise as it was seen in other trials: the ledger's is not what is there"
        )
    cut, held = scores[:, :tuning], scores[:, tuning:]
    fit = None
    if gaussian:
        fit = by_pairs(held, delta, confidence)
    elif pairs.coins.size:
        fit = by_samples(pairs.places, pairs.apart, pairs.coins, delta, confidence)
    plain = [by_threshold(cut, held, delta, confidence)]
    if pairs.losses is not None:
        plain.append(by_threshold(pairs.losses[:, :tuning], pairs.losses[:, tuning:], delta, confidence, LOSS))
    bounds = plain if fit is None else [fit, *plain]
    return _with_bound(
        replace(finding, others=tuple(bounds), accuracy=told_apart(cut, held), distinguisher=distinguisher),
        bounds[0],
        _runs_to_refute(finding, confidence),
    )


def _with_bound(finding: Finding, bound: Bound, enough: int | None) -> Finding:
    """Make a finding from a bound; `enough` is given only if the trials were not enough."""
    found = replace(finding, bound=bound)
    return found if found.could_refute else replace(found, enough=enough)


def _noise_twice(pairs: _Pairs) -> str | None:
    """Report noise that repeats. For the noise, trials are sites of one run: if scores that differ between the worlds
    repeat, several sites have the same noise, and their difference has none."""
    places = pairs.features[0] if pairs.features.size else pairs.places[0]
    if not places.size or (pairs.scores[0] == pairs.scores[1]).all():
        return None
    if len(np.unique(places.sum(1))) >= _DIFFERENT * len(places):
        return None
    return "noise depends on less than its place: sites of one run have the same, and their difference has none"


def _is_better_fitted(scores: Array, features: Array) -> bool:
    """Whether the noise seen in half of the tuning trials gives clearly better scores on the other half than the stated
    noise. With sound noise it does not, and the stated one needs no fitting."""
    half = scores.shape[1] // 2
    if half < 4 * features.shape[2]:
        return False
    stated, seen = scores[:, half:], features[:, half:] @ fitted(features[:, :half])

    def apart(values: Array) -> float:
        return float((values[1].mean() - values[0].mean()) / max(values.std(1).mean(), 1e-300))

    return apart(seen) > 1.5 * apart(stated) + 5.0 * math.sqrt(2.0 / half)


def _in_one_run(finding: Finding, trials: _Trials, enough: int, each: int) -> Finding:
    """Put so many canaries in every site at once, each by a coin. The clearest are guessed; if noise is Gaussian, all
    of them together are also tested against it. For guesses alone, different canaries are better."""
    stage = trials.stage
    sites = len(stage.job.topo.servers if isinstance(stage, RegionStage) else stage.job.topo.silos)
    coins = np.random.Generator(np.random.PCG64([trials.root & (2**63 - 1), 1]))
    bits = coins.random((sites, min(each, stage.most))) < 0.5
    finding = replace(finding, trials=bits.size, trial=CANARY)
    played = play(stage, bits, trials.root, trials.hidden)
    if played.leak is not None:
        return replace(finding, leak=played.leak)
    curves = LedgerCurves([row for row in played.rows if row.part in ("", stage.part)], finding.delta)
    guesses = clearest(bits.size)
    clear = np.argsort(-np.abs(played.scores.ravel()), kind="stable")[:guesses]
    right = int(((played.scores > 0.0) == bits).ravel()[clear].sum())
    guessed = by_guesses(bits.size, guesses, right, curves, finding.delta, trials.confidence)
    fit = by_alignment(played.aligned, curves, finding.delta, trials.confidence, bits.size)
    bounds = (guessed,) if fit is None else (fit, guessed)
    words = f"{right} of {guesses} guesses right, of {bits.size} canaries in one run"
    found = replace(finding, others=bounds, accuracy=right / guesses, distinguisher=words)
    return _with_bound(found, bounds[0], enough)
