"""Attack a deployment as its server could: ask the real organisations dishonest questions, and compare with their
ledgers.

Every strategy is played in pairs of trials, one in each of two neighbouring worlds, with the same secret noise. What
the server saw gives a lower bound on the epsilon that it extracted. It is compared with the cost in the organisation's
own ledger: if it is more, the deployment's promise is refuted.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from silograph.audit.extremes import extreme_strategies
from silograph.audit.hostile import Attacked, Theatre, claimed
from silograph.audit.strategies import STRATEGIES, Strategy
from silograph.audit.worlds import LOUD, Worlds, secret
from silograph.core.errors import InputError
from silograph.core.keys import secret_root
from silograph.core.types import Array, Json
from silograph.deploy.deployment import FILE, SERVER, Deployment, open_job
from silograph.privacy.attacks.bounds import Bound
from silograph.privacy.attacks.sights import Event, by_event, by_numbers, by_times, telling_event
from silograph.report.audits import CONFIDENCE

LEAST_PAIRS, MOST_PAIRS = 24, 400
SECONDS = 90.0
_TUNING = 1.0 / 3.0  # of the pairs choose where to look; the others are judged
_SHARES = 3  # bounds of a strategy that share the allowed chance to err
_SEARCHING = 0.15  # of the time
_PILOT = 2  # rounds of the first trial, which measures how long one takes

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class StrategyFinding:
    """What a strategy extracted. `paid` is the highest cost in the organisation's ledger in the trials that count;
    `ledger` is its cost at the end, which is less if an older copy was put back."""

    strategy: Strategy
    trials: int
    rounds: int
    paid: float
    ledger: float
    delta: float
    bound: Bound
    observation: str
    leak: str | None
    times: Bound
    answers: Json
    budget: float | None
    released: bool  # whether the server ever saw a number

    @property
    def epsilon_lower(self) -> float:
        return math.inf if self.leak is not None else self.bound.epsilon

    @property
    def overspent(self) -> bool:
        """Whether the ledger itself costs more than was promised; copies of a folder spend twice, and report it."""
        return self.budget is not None and not self.strategy.copies and self.paid > self.budget * (1.0 + 1e-9)

    @property
    def refuted(self) -> bool:
        return self.overspent or self.epsilon_lower > self.paid * (1.0 + 1e-9)

    @property
    def could_refute(self) -> bool:
        return self.refuted or self.bound.largest > self.paid

    def to_json(self) -> Json:
        return {
            "strategy": self.strategy.name,
            "does": self.strategy.words,
            "trials": self.trials,
            "rounds": self.rounds,
            "epsilon_lower": _number(self.epsilon_lower),
            "epsilon_paid": _number(self.paid),
            "epsilon_ledger": _number(self.ledger),
            "delta": self.delta,
            "observation": self.observation,
            "how": self.bound.how,
            "largest_possible": _number(self.bound.largest),
            "could_refute": self.could_refute,
            "leak": self.leak,
            "times_epsilon_lower": self.times.epsilon,
            "answers": self.answers,
            "released": self.released,
            "older_copies": self.strategy.copies,
            "refuted": self.refuted,
        }


@dataclass(frozen=True)
class DeploymentFinding:
    """The findings of an audit of a deployment, strategy by strategy; without `worlds` nothing is claimed."""

    digest: str
    budget: float | None
    delta: float
    rehearsal: bool
    worlds: Worlds | None = None
    outcomes: tuple[StrategyFinding, ...] = ()

    @property
    def refuted(self) -> bool:
        return any(outcome.refuted for outcome in self.outcomes)

    def to_json(self) -> Json:
        worlds = self.worlds
        return {
            "deployment": self.digest,
            "observer": "server",
            "organisation": None if worlds is None else worlds.organisation,
            "site": None if worlds is None else worlds.silo,
            "canary": None if worlds is None else worlds.words,
            "neighbouring_steps": None if worlds is None else worlds.steps,
            "claimed": worlds is not None,
            "confidence": None if worlds is None else CONFIDENCE,
            "epsilon_budget": self.budget,
            "delta": None if worlds is None else self.delta,
            "rehearsal": self.rehearsal,
            "refuted": self.refuted,
            "strategies": [outcome.to_json() for outcome in self.outcomes],
        }


def _number(value: float) -> float | str:
    return "infinity" if math.isinf(value) else value


def deployment_at(target: Path) -> Path | None:
    """Find the folder of a deployment's file, if `target` is that file, an organisation's folder, the server's, or the
    folder of all."""
    if target.name == FILE:
        return target.parent
    return next((folder for folder in (target, target / SERVER) if (folder / FILE).is_file()), None)


def audit_deployment(
    folder: Path,
    pairs: int | None = None,
    seconds: float = SECONDS,
    only: str | None = None,
    rounds: int | None = None,
    root: int | None = None,
    progress: Progress = lambda share, words: None,
) -> DeploymentFinding:
    """Play every strategy, or the `only` one, against the organisations of the deployment in `folder`.

    It takes about so many seconds, and at least the time of the fewest trials. `pairs` fixes the number of trials in
    each world, `rounds` the number of rounds in a trial, and `root` every random number, for tests.
    """
    if pairs is not None and not LEAST_PAIRS <= pairs <= MOST_PAIRS:
        raise InputError("audit, runs", f"{LEAST_PAIRS} to {MOST_PAIRS} for a deployment", f"found {pairs}")
    if not 0.0 < seconds < math.inf:
        raise InputError("audit, seconds", "a number above 0", f"found {seconds}")
    given = Deployment.read(folder)
    rehearsal = given.plan.privacy is not None and given.plan.seed is not None
    memory = Path("/dev/shm")  # nothing here must last, and an organisation syncs every answer to disk
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch,
        np.errstate(all="ignore"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # extreme numbers overflow on purpose
        deployment = secret(given)
        deployment.lay_out(Path(scratch))
        job = open_job(deployment, Path(scratch))
        budget = None if job.budget is None else job.budget.epsilon
        finding = DeploymentFinding(given.digest, budget, job.plan.total_delta, rehearsal)
        if not claimed(job):
            return finding
        root = secret_root() if root is None else root
        theatre = Theatre(deployment, job, Path(scratch) / "organisations", root)
        attack = _Attack(theatre, pairs, root, seconds, only, rounds)
        return replace(finding, worlds=theatre.worlds, outcomes=tuple(attack.run(progress)))


@dataclass(eq=False)
class _Trial:
    """One world of a pair, after its trial."""

    history: Hashable
    numbers: list[Array]
    kinds: list[str]
    seconds: float
    paid: float
    ledger: float
    delta: float


@dataclass(eq=False)
class _Attack:
    theatre: Theatre
    pairs: int | None
    root: int
    seconds: float
    only: str | None
    rounds: int | None

    def run(self, progress: Progress) -> list[StrategyFinding]:
        begun = time.monotonic()
        strategies = self._strategies(progress)
        confidence = 1.0 - (1.0 - CONFIDENCE) / (_SHARES * len(strategies))
        found = []
        for k, strategy in enumerate(strategies):
            progress(k / len(strategies), strategy.name)
            left = self.seconds - (time.monotonic() - begun)
            weight = sum(each.weight for each in strategies[k:])
            found.append(self._outcome(strategy, max(left, 0.0) * strategy.weight / weight, confidence))
        progress(1.0, "done")
        return found

    def _strategies(self, progress: Progress) -> list[Strategy]:
        """The strategies that apply to the deployment, and those that a search found."""
        found = [each for each in STRATEGIES if self.theatre.masked or not each.masked]
        if self.only not in [each.name for each in found]:
            progress(0.0, "searching")
            found += extreme_strategies(self.theatre, self.root, time.monotonic() + _SEARCHING * self.seconds)
        if self.only is None:
            return found
        chosen = [each for each in found if each.name == self.only]
        if not chosen:
            names = ", ".join(each.name for each in found)
            raise InputError(
                "audit, strategy", f"one of {names}", f"found {self.only!r}, or a search found nothing for it"
            )
        return chosen

    def _outcome(self, strategy: Strategy, seconds: float, confidence: float) -> StrategyFinding:
        rounds, pairs = self._size(strategy, seconds)
        tuning = int(_TUNING * pairs)
        trials = self._play(strategy, rounds, range(tuning))
        event = telling_event(
            [[t.history for t in world] for world in trials], [[t.paid for t in world] for world in trials]
        )
        pairs = self._enough(event, trials, pairs, tuning, confidence)
        for world, more in zip(trials, self._play(strategy, rounds, range(tuning, pairs)), strict=True):
            world += more
        return self._judged(strategy, rounds, trials, event, tuning, confidence)

    def _size(self, strategy: Strategy, seconds: float) -> tuple[int, int]:
        """Choose as many rounds per trial, and pairs of trials, as fit into the time: first all rounds, then more
        trials."""
        most = max(strategy.least_rounds, int(min(self.theatre.job.most_rounds, strategy.most_rounds)))
        least = self.pairs or LEAST_PAIRS
        if self.rounds is not None and self.pairs is not None:
            return max(strategy.least_rounds, min(most, self.rounds)), self.pairs
        pilot, each = min(_PILOT, most), math.inf
        for _ in range(2):  # the first time some of it is compiled
            begun = time.monotonic()
            self._trial(strategy, pilot, LOUD, -1)
            each = min(each, (time.monotonic() - begun) / pilot)
        rounds = max(strategy.least_rounds, min(most, int(seconds / (2.0 * least * each))))
        if self.pairs is not None:
            return rounds, self.pairs
        return rounds, max(least, min(4 * LEAST_PAIRS, int(seconds / (2.0 * rounds * each))))

    def _enough(self, event: Event, trials: Sequence[Sequence[_Trial]], pairs: int, tuning: int, err: float) -> int:
        """The number of pairs: more if one history is in one world alone, until its bound can exceed the cost paid in
        it."""
        counts = [sum(trial.history == event.history for trial in world) for world in trials]
        if self.pairs is not None or counts[event.world] < tuning or counts[1 - event.world]:
            return pairs
        paid = max(trial.paid for trial in trials[event.world])
        for enough in range(pairs, MOST_PAIRS, LEAST_PAIRS):
            certain: list[list[Hashable]] = [[event.history] * (enough - tuning), [None] * (enough - tuning)]
            if by_event(Event(event.history, 0), certain, self.theatre.delta, err).epsilon > paid:
                return enough
        return pairs

    def _play(self, strategy: Strategy, rounds: int, numbers: range) -> list[list[_Trial]]:
        """Play the trials of both worlds; a coin chooses the first world, so that times can be compared."""
        worlds: list[list[_Trial]] = [[], []]
        for number in numbers:
            coin = self._secret(strategy, number, "order") % 2
            for k in (coin, 1 - coin):
                worlds[k].append(self._trial(strategy, rounds, (LOUD, strategy.against)[k], number))
        return worlds

    def _secret(self, strategy: Strategy, number: int, purpose: str) -> int:
        named = f"{self.root} {strategy.name} {number} {purpose}"
        return int.from_bytes(hashlib.sha256(named.encode()).digest(), "big")

    def _trial(self, strategy: Strategy, rounds: int, world: int, number: int) -> _Trial:
        organisations = self.theatre.open(world, self._secret(strategy, number, "noise"))
        try:
            strategy.play(organisations, rounds)
            return self._over(organisations, strategy)
        finally:
            organisations.close()

    def _over(self, organisations: Attacked, strategy: Strategy) -> _Trial:
        rows, seen = organisations.rows, organisations.seen
        everything = list(dict.fromkeys([*rows, *organisations.forgotten])) if strategy.copies else rows
        paid = self.theatre.paid(everything)
        return _Trial(
            tuple((each.kind, each.size) for each in seen),
            [each.numbers for each in seen],
            [each.kind for each in seen],
            sum(each.seconds for each in seen),
            paid.epsilon,
            self.theatre.paid(rows).epsilon,
            max(paid.delta, self.theatre.delta),
        )

    def _judged(
        self,
        strategy: Strategy,
        rounds: int,
        trials: Sequence[Sequence[_Trial]],
        event: Event,
        tuning: int,
        confidence: float,
    ) -> StrategyFinding:
        everybody = [trial for world in trials for trial in world]
        delta, budget = max(trial.delta for trial in everybody), self.theatre.job.budget
        histories = [[trial.history for trial in world[tuning:]] for world in trials]
        numbers = by_numbers(
            [[trial.numbers for trial in world] for world in trials], tuning, delta, confidence, self.theatre.gaussian
        )
        happened = by_event(event, histories, delta, confidence)
        spent = max(trial.paid for trial in everybody)
        cheap = max((trial.paid for trial in everybody if trial.history == event.history), default=spent)
        bound, paid, observation, leak = numbers, spent, "the numbers in its answers", None
        if happened.epsilon > min(cheap, numbers.epsilon):
            bound, paid, observation = happened, cheap, "which questions it answered, and how it refused others"
            always = all(trial.history == event.history for trial in trials[event.world])
            never = not any(trial.history == event.history for trial in trials[1 - event.world])
            if always and never and cheap == 0.0:
                leak = f"free of charge, {_first_difference(trials)}, every time"
        elif math.isinf(numbers.epsilon):
            leak = numbers.how
        times = by_times(np.array([[trial.seconds for trial in world] for world in trials]), tuning, delta, confidence)
        answers = Counter(kind for trial in trials[0] for kind in trial.kinds)
        return StrategyFinding(
            strategy,
            len(trials[0]),
            rounds,
            paid,
            max(trial.ledger for trial in everybody),
            delta,
            bound,
            observation,
            leak,
            times,
            {kind: round(count / len(trials[0]), 2) for kind, count in sorted(answers.items())},
            None if budget is None else self.theatre.worlds.steps * budget.epsilon,
            any(numbers.size for trial in everybody for numbers in trial.numbers),
        )


def _first_difference(trials: Sequence[Sequence[_Trial]]) -> str:
    """Describe the two answers to the first question with different answers."""
    pairs = zip(trials[0][0].kinds, trials[1][0].kinds, strict=False)
    for number, (first, second) in enumerate(pairs, 1):
        if first != second:
            return f"to question {number} {first} in one world and {second} in the other"
    return "answers of another size, or another number of them"
