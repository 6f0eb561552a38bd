"""Attack a plan through its own pipeline and gate, and hold what was found against what is promised.

A trial is a pair of runs of the plan's method, one without the canary and one with it, each with noise of its own and
through the real gate. Two things are then asked of what came out.

    Is there another way out? The round is computed again from each of the two worlds, with a gate that gives back what
    was released the first time. All messages must then be the same to the last bit: they may depend on what was
    released and on nothing else. Where one is not, it leaks whatever the noise, and epsilon is infinite.

    How much does what was released tell? The likelihood ratio of the two worlds, over all rows that the observer may
    see, is the best score there is. From many trials follows a lower bound on epsilon, with its confidence.

What the two worlds are is `canaries`. Where a plan claims no epsilon, attacks on what it sends are shown instead.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.files import write_atomically
from silograph.core.keys import secret_root
from silograph.core.types import Array, Json
from silograph.methods.base import Outlet, Rows
from silograph.privacy.accounting import GAUSSIANS, Cost, cost
from silograph.privacy.attacks.bounds import Bound, by_gaussian, by_one_run, by_threshold, success
from silograph.privacy.attacks.scores import Release, fitted, log_ratios
from silograph.privacy.bound import Bounded
from silograph.privacy.gate import Batch, Door, Released, Sealed, Total, hidden_from, sealed_rows
from silograph.privacy.ledger import Ledger, Row
from silograph.run.bill import bill_of_run
from silograph.run.canaries import Bits, Stage, UnitStage, stage_of, trial_names
from silograph.run.jobs import Job, open_job
from silograph.run.meta_job import MetaJob
from silograph.run.openness import exposure
from silograph.run.plan import AnyPlan, load
from silograph.run.sections import named_files

Observer = Literal["server", "neighbour", "wire", "public"]
OBSERVERS: tuple[Observer, ...] = ("server", "neighbour", "wire", "public")

PAIR = "a pair of runs, one without the canary and one with it"
CANARY = "one canary of a single run, there or not by a coin"

CONFIDENCE = 0.99
LEAST_RUNS = 200
_TUNING = 0.2  # of the trials choose threshold and distinguisher; the others are judged
_RELEASES = 50_000  # in either world of an audit, unless it is said how many trials
_AT_ONCE = 2_000_000  # numbers of one release that are held at a time
_UNITS_AT_ONCE = 200  # servers of trials; their mixing is a matrix
_FEW, _GUESSES = 30, 1.0 / 3.0  # canaries of a single run: all of a few are guessed, else those with clear scores

#: Called with the share of the work that is done.
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Finding:
    """What an audit found. Where nothing is claimed there is no `bound`, only what `attacks` made of it."""

    observer: str
    site: str
    unit: str
    canary: str
    accounted: Cost
    trials: int
    bound: Bound | None
    trial: str = PAIR
    others: tuple[Bound, ...] = ()
    accuracy: float | None = None
    distinguisher: str = ""
    leak: str | None = None
    attacks: tuple[Json, ...] = ()

    @property
    def claimed(self) -> bool:
        return math.isfinite(self.accounted.epsilon)

    @property
    def epsilon_lower(self) -> float:
        return math.inf if self.leak is not None else 0.0 if self.bound is None else self.bound.epsilon

    @property
    def refuted(self) -> bool:
        return self.claimed and self.epsilon_lower > self.accounted.epsilon

    def to_json(self) -> Json:
        def number(value: float) -> float | str:
            return "infinity" if math.isinf(value) else value

        return {
            "observer": self.observer,
            "site": self.site,
            "unit": self.unit,
            "canary": self.canary,
            "trials": self.trials,
            "trial": self.trial,
            "epsilon_lower": number(self.epsilon_lower) if self.claimed else None,
            "confidence": CONFIDENCE if self.claimed else None,
            "epsilon_accounted": number(self.accounted.epsilon),
            "delta": self.accounted.delta if self.claimed else None,
            "accountant": self.accounted.accountant,
            "refuted": self.refuted,
            "how": None if self.bound is None else self.bound.how,
            "bounds": [{"how": b.how, "epsilon": number(b.epsilon), "trials": b.trials} for b in self.others],
            "distinguisher": self.distinguisher,
            "accuracy": self.accuracy,
            "leak": self.leak,
            "attacks": list(self.attacks),
        }


def audit(
    plan: Path,
    observer: Observer | None = None,
    runs: int | None = None,
    one_run: bool = False,
    root: int | None = None,
    progress: Progress = lambda share: None,
) -> Finding:
    """Attack the plan's promise to `observer`, the strongest that is promised anything if None."""
    return audit_job(open_job(load(plan), plan.parent), observer, runs, one_run, root, progress)


def audit_run(
    folder: Path,
    report: Callable[[Path], str],
    observer: Observer | None = None,
    runs: int | None = None,
    one_run: bool = False,
    root: int | None = None,
    progress: Progress = lambda share: None,
) -> Finding:
    """Attack the plan of a finished run. What is found goes into its folder, as audit.json, and into its page.

    `report` makes the page of a folder; it is passed in because it belongs to a layer above.
    """
    bill_of_run(folder)  # refuses a folder whose numbers are not the ledger's
    path = folder / "plan.toml"
    plan, digest = load(path), hashlib.sha256(path.read_bytes()).hexdigest()
    _need_tables(plan, folder)
    finding = audit_job(open_job(plan, folder), observer, runs, one_run, root, progress)
    told = {"format": 1, "plan": digest, **finding.to_json()}
    write_atomically(folder / "audit.json", (json.dumps(told, indent=1, allow_nan=False) + "\n").encode())
    write_atomically(folder / "report.html", report(folder).encode())
    return finding


def _need_tables(plan: AnyPlan, folder: Path) -> None:
    """A deployment's tables never come to the folder of its run."""
    names = [*named_files(plan, private=True), *named_files(plan, private=False)]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise InputError(
            str(folder),
            "the tables of its plan, where plan.toml says: an audit needs them for their shape",
            f"{missing[0]} is not there" + f", nor {len(missing) - 1} more" * (len(missing) > 1),
            "Put them back. Of a deployment, whose tables stay with the parties, audit the plan before it is deployed, "
            "with made-up tables of the same columns and sizes.",
        )


def audit_job(
    job: Job,
    observer: Observer | None = None,
    runs: int | None = None,
    one_run: bool = False,
    root: int | None = None,
    progress: Progress = lambda share: None,
) -> Finding:
    """The same of a job. `runs` trials, each in both worlds; `root` fixes every random number, for tests."""
    if runs is not None and (runs < LEAST_RUNS or one_run):
        expected = f"{LEAST_RUNS} or more, or a single run"
        raise InputError("audit, runs", expected, f"{runs} came" + " with a single run" * one_run)
    stage, root = stage_of(job), secret_root() if root is None else root
    rows = play(stage, np.array([[False], [True]]), root).rows
    strongest = next((o for o in OBSERVERS if math.isfinite(_accounted(job, rows, o).epsilon)), "server")
    against = strongest if observer is None else observer
    accounted = _accounted(job, rows, against)
    unit = next((row.unit for row in rows if row.unit), "none")
    finding = Finding(against, stage.site, unit, stage.canary, accounted, 0, None)
    if not finding.claimed:
        return replace(finding, attacks=tuple(exposure(job, against, root)))
    hidden = hidden_from(against)
    if one_run:
        return _in_one_run(finding, stage, root, hidden)
    return _in_many(finding, stage, runs or default_runs(stage, rows), root, hidden, progress)


def default_runs(stage: Stage, rows: Sequence[Row]) -> int:
    """Ten thousand of a single release, fewer of long runs: what two cores do in about a minute."""
    agents = stage.size if isinstance(stage, UnitStage) and stage.masks is not None else 1  # each draws its own noise
    return max(LEAST_RUNS, min(10_000, _RELEASES // (len(rows) * agents)))


def _accounted(job: Job, rows: Sequence[Row], observer: str) -> Cost:
    """What the ledger of one trial costs: the same rows as the plan's own run leaves for its site."""
    delta = 0.0 if job.budget is None else job.budget.delta
    if isinstance(job, MetaJob) and job.plan.privacy is not None:  # S4's own version has a delta and no budget
        delta = job.plan.privacy.delta
    return cost([row for row in rows if row.observer not in hidden_from(observer)], delta)


# ---- what is seen, and what would have been --------------------------------------------------------------------------


class Tap:
    """A gate that keeps what it lets out, by site. Everything passes as it came."""

    def __init__(self, gate: Outlet, came: dict[str, Released | Total]) -> None:
        self._gate, self._came = gate, came

    def rows(self, index: Sequence[int] | Rows) -> Tap:
        return Tap(self._gate.rows(index), self._came)

    def over(self, names: Sequence[str]) -> Tap:
        return Tap(self._gate.over(names), self._came)

    def poisson(self, counts: Array, rate: float, site: str, part: str) -> Batch:
        return self._gate.poisson(counts, rate, site, part)

    def release(self, bounded: Bounded, site: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        # Positional and only where there is a batch: gates of tests take two arguments too.
        made = self._gate.release(bounded, site) if batch is None else self._gate.release(bounded, site, batch, share)
        self._came[site] = made
        return made

    def reveal(self, value: Array, site: str, why: str) -> Released:
        return self._gate.reveal(value, site, why)

    def contribute(self, value: Array, site: str, clip: float | None = None) -> Sealed:
        return self._gate.contribute(value, site, clip)

    def total(self, sealed: Sealed, rows: Rows, home: Rows, names: Sequence[str]) -> Total:
        made = self._gate.total(sealed, rows, home, names)
        if made.released:
            self._came[sealed.site] = made
        return made

    def uniforms(self, count: int, site: str) -> Array:
        return self._gate.uniforms(count, site)

    def sync(self) -> None:
        """Rows of trials are read from the door."""


class Replay(Tap):
    """In the place of a gate: keeps what a world would have released there, and gives back what was released.

    Whoever attacks does not know the coins of a sample: here all records are in it, and the score weighs the chance.
    """

    def __init__(self, gate: Outlet, came: dict[str, Released | Total], inside: dict[str, Array], servers: int) -> None:
        super().__init__(gate, came)
        self._inside, self._servers = inside, servers

    def rows(self, index: Sequence[int] | Rows) -> Replay:
        return Replay(self._gate.rows(index), self._came, self._inside, self._servers)

    def over(self, names: Sequence[str]) -> Replay:
        return Replay(self._gate.over(names), self._came, self._inside, len(names))

    def poisson(self, counts: Array, rate: float, site: str, part: str) -> Batch:
        made = self._gate.poisson(counts, 1.0, site, part)
        return replace(made, rate=rate)

    def release(self, bounded: Bounded, site: str, batch: Batch | None = None, share: float = 1.0) -> Released:
        made = self._came.get(site)
        if not isinstance(made, Released):
            raise InputError(f"audit, {site!r}", "the same releases whatever the records", "one came in one world only")
        self._inside[site] = np.array(bounded.value)
        return made

    def reveal(self, value: Array, site: str, why: str) -> Released:
        raise InputError(f"audit, {site!r}", "nothing revealed to who is promised something", "it was")

    def total(self, sealed: Sealed, rows: Rows, home: Rows, names: Sequence[str]) -> Total:
        value, place = sealed_rows(sealed), home[rows]
        sums = np.zeros((self._servers, value.shape[1]))
        np.add.at(sums, place, value)
        made = self._came.get(sealed.site)
        if isinstance(made, Total):
            self._inside[sealed.site] = sums
            return made
        return Total(sums, np.bincount(place, minlength=self._servers).astype(np.float64), released=False)


@dataclass(eq=False)
class Played:
    """Trials that ran: the ledger rows of the first, scores (trials, canaries), the features they are made of, and
    where a message told more than what was released."""

    rows: list[Row]
    scores: Array
    features: list[Array]
    leak: str | None = None


def play(stage: Stage, bits: Bits, root: int, hidden: frozenset[str] = frozenset()) -> Played:
    """All trials of `bits` at once, round by round, each beside the worlds that it is held against: the one without any
    canary, and the ones with each of them alone."""
    trials, canaries = bits.shape
    played = Played([], np.zeros(bits.shape), [])
    names, data, memory = trial_names(trials), stage.tables(bits), stage.begin(trials)
    worlds = np.eye(canaries + 1, canaries, -1, dtype=np.bool_)
    tables = [stage.tables(np.repeat(world[None], trials, 0)) for world in worlds]
    memories = [memory for _ in worlds]
    for number in stage.rounds:
        door = Door(root, Ledger(), stage.job.mechanism, masks=stage.masks)
        gate = door.gate(names, number, stage.observer)
        came: dict[str, Released | Total] = {}
        memory, told = stage.step(number, memory, data, Tap(gate, came))
        seen = [row for row in door.waiting if row.observer not in hidden]
        played.rows += [row for row in seen if row.silo.split("/")[0] == names[0]]
        if any(row.mechanism == "reveal" for row in seen):
            continue  # nothing is promised to this observer, and no likelihood is needed
        charged = {row.site for row in door.waiting}
        for site in came.keys() - charged:
            played.leak = played.leak or f"what was released at {site!r} in round {number} has no row in the ledger"
        insides: list[dict[str, Array]] = []
        for k, table in enumerate(tables):
            inside: dict[str, Array] = {}
            memories[k], again = stage.step(number, memories[k], table, Replay(gate, came, inside, trials))
            insides.append(inside)
            played.leak = played.leak or _difference(told, again, number)
        for k in range(canaries):
            told_of = {row.site for row in seen}
            releases = [_release(site, seen, made, insides, k) for site, made in came.items() if site in told_of]
            played.scores[:, k] += log_ratios(releases)
            if canaries == 1:
                played.features += [release.shift() for release in releases if release.sampling == 1.0]
    return played


def _difference(told: Mapping[str, Array], again: Mapping[str, Array], number: int) -> str | None:
    """The first message that depends on more than what was released."""
    for name in sorted(told.keys() | again.keys()):
        if name not in told or name not in again or not np.array_equal(told[name], again[name], equal_nan=True):
            return (
                f"message {name!r} of round {number} changes with the records, though all that was released is the same"
            )
    return None


def _release(
    site: str, seen: Sequence[Row], made: Released | Total, insides: Sequence[Mapping[str, Array]], canary: int
) -> Release:
    """What came at a site, beside the worlds without and with one canary, the others being there or not by halves."""
    rows = [row for row in seen if row.site == site]
    came = made.value if isinstance(made, Released) else made.sums
    base = insides[0][site]
    parts = [inside[site] - base for inside in insides[1:]]
    rate = rows[0].sampling
    others = sum((0.5 * rate * part for k, part in enumerate(parts) if k != canary), np.zeros_like(base))
    noise = np.array([row.noise for row in rows], dtype=np.float64)
    kind = rows[0].mechanism
    return Release(came, base + others, base + others + parts[canary], noise, kind, rate, rows[0].batch)


# ---- how much it tells -----------------------------------------------------------------------------------------------


def _in_many(
    finding: Finding, stage: Stage, runs: int, root: int, hidden: frozenset[str], progress: Progress
) -> Finding:
    scores, features, rows, leak = _trials(stage, runs, root, hidden, progress)
    if leak is not None:
        return replace(finding, trials=runs, leak=leak)
    tuning = int(_TUNING * scores.shape[1])
    distinguisher = "likelihood ratio with the noise that the ledger states"
    gaussian = all(row.mechanism in GAUSSIANS and row.sampling == 1.0 for row in rows)
    if gaussian and _is_better_fitted(scores[:, :tuning], features[:, :tuning]):
        scores = features @ fitted(features[:, :tuning])
        distinguisher = (
            "likelihood ratio with the noise as it was seen in other trials: the ledger's is not what is there"
        )
    held = scores[:, tuning:]
    delta = finding.accounted.delta
    bounds = [by_threshold(scores[:, :tuning], held, delta, CONFIDENCE)]
    if gaussian and (fit := by_gaussian(held, delta, CONFIDENCE)) is not None:
        bounds.insert(0, fit)
    accuracy = success(held)[1]
    return replace(
        finding,
        trials=runs,
        bound=bounds[0],
        others=tuple(bounds),
        accuracy=accuracy,
        distinguisher=distinguisher,
    )


def _trials(
    stage: Stage, runs: int, root: int, hidden: frozenset[str], progress: Progress
) -> tuple[Array, Array, list[Row], str | None]:
    """Scores (2, n) without and with the canary, and features (2, n, k); as many at once as memory likes."""
    done, parts, rows = 0, [], []  # type: int, list[Played], list[Row]
    size = 40
    while done < runs:
        size = min(size, runs - done)
        bits = np.repeat([[False], [True]], size, 0)
        # Every call has a root of its own, so that no two trials share any noise.
        played = play(stage, bits, root + len(parts), hidden)
        parts.append(played)
        done += size
        rows = rows or played.rows
        if played.leak is not None:
            return np.zeros((2, 1)), np.zeros((2, 1, 1)), rows, played.leak
        progress(done / runs)
        widest = max(row.dim for row in rows)
        size = max(20, min(_UNITS_AT_ONCE if isinstance(stage, UnitStage) else 1000, _AT_ONCE // widest))
    scores = np.concatenate([part.scores[:, 0].reshape(2, -1) for part in parts], axis=1)
    features = np.concatenate([_paired(part) for part in parts], axis=1)
    return scores, features, rows, None


def _paired(part: Played) -> Array:
    """(2, n, k): features without and with the canary."""
    return np.array(part.features).T.reshape(2, part.scores.size // 2, len(part.features))


def _is_better_fitted(scores: Array, features: Array) -> bool:
    """Whether noise as it was seen tells clearly more than noise as it is stated: by half of the tuning trials, on the
    other half. With sound noise it does not, and the stated one needs no fitting."""
    half = scores.shape[1] // 2
    if half < 4 * features.shape[2]:
        return False
    stated, seen = scores[:, half:], features[:, half:] @ fitted(features[:, :half])

    def apart(values: Array) -> float:
        return float((values[1].mean() - values[0].mean()) / max(values.std(1).mean(), 1e-300))

    return apart(seen) > 1.5 * apart(stated) + 5.0 * math.sqrt(2.0 / half)


def _in_one_run(finding: Finding, stage: Stage, root: int, hidden: frozenset[str]) -> Finding:
    """Canaries in every site at once, each by a coin; the clearest third of the scores are guessed, or all of a few."""
    sites = len(stage.job.topo.servers if isinstance(stage, UnitStage) else stage.job.topo.silos)
    coins = np.random.Generator(np.random.PCG64([root & (2**63 - 1), 1]))
    bits = coins.random((sites, stage.most)) < 0.5
    finding = replace(finding, trials=bits.size, trial=CANARY)
    played = play(stage, bits, root, hidden)
    if played.leak is not None:
        return replace(finding, leak=played.leak)
    scores = played.scores.ravel()
    guesses = min(scores.size, max(_FEW, math.ceil(_GUESSES * scores.size)))
    clearest = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    right = int(((scores > 0.0) == bits.ravel())[clearest].sum())
    bound = by_one_run(scores.size, guesses, right, finding.accounted.delta, CONFIDENCE)
    words = f"{right} of {guesses} guesses right, of {scores.size} canaries in one run"
    return replace(finding, bound=bound, others=(bound,), accuracy=right / guesses, distinguisher=words)
