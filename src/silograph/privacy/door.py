"""One run's border: what it may spend, what it has spent, and the gates that are cut from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from silograph.core.errors import BudgetError, DamageError, LeakError
from silograph.privacy.accounting import Cost, Planned, Tally, cost
from silograph.privacy.gate import Gate
from silograph.privacy.ledger import Ledger, Row
from silograph.privacy.masking import Masks
from silograph.privacy.mechanisms import Noise
from silograph.privacy.observers import SERVER, hidden_from


@dataclass(frozen=True)
class Budget:
    """The most a silo may spend in total, against all observers but those it trusts.

    Parameters
    ----------
    epsilon : The most that a silo's rows may cost.
    delta : The delta that the budget is for.
    trusted : Observers whose rows do not count, such as "own server".
    planned : Samples of records that are known to fit, so that their costs need not be computed one by one.

    >>> from silograph.privacy.bound import Bounded
    >>> from silograph.privacy.ledger import Ledger
    >>> from silograph.privacy.mechanisms import Gaussian
    >>> door = Door(0, Ledger(), Gaussian(1.0), Budget(epsilon=2.0, delta=1e-6))
    >>> door.gate(["north"], round=0).release(Bounded(np.zeros((1, 2)), np.ones(1), "a row", "clip"), "mean")
    Traceback (most recent call last):
        ...
    silograph.core.errors.BudgetError: silo north, round 0, mean: expected a total of at most epsilon 2 ...
    """

    epsilon: float
    delta: float
    trusted: frozenset[str] = frozenset()
    planned: Planned | None = None


@dataclass
class Door:
    """One run's border: randomness, mechanism, budget and ledger. Gates are cut from it, one per call.

    Parameters
    ----------
    root : The seed of all noise and samples. Whoever knows it can remove the noise, so a real run takes secret entropy.
    ledger : Where a row of each release is kept.
    mechanism : The noise of releases. None: `Gate.release` is refused.
    budget : What a silo may spend; a release beyond it is refused. None: no limit.
    randomness : Where root is from, in words for the ledger.
    masks : How sums of several silos' vectors are masked. None: their server sees each vector.

    >>> from silograph.privacy.accounting import gaussian_multiplier
    >>> from silograph.privacy.bound import Bounded
    >>> from silograph.privacy.ledger import Ledger
    >>> from silograph.privacy.mechanisms import Gaussian
    >>> door = Door(0, Ledger(), Gaussian(gaussian_multiplier(2.0, 1e-6, 1)), Budget(2.0, 1e-6))
    >>> gate = door.gate(["north", "south"], round=0)
    >>> released = gate.release(Bounded(np.zeros((2, 3)), np.array([0.1, 0.2]), "a row", "clip"), "mean")
    >>> len(door.waiting), len(door.ledger.rows)
    (2, 0)
    >>> door.sync()  # rows are on disk before a message leaves
    >>> round(door.spent("south", delta=1e-6).epsilon, 6), door.spent("south", 1e-6).accountant
    (2.0, 'exact Gaussian curve')
    """

    root: int
    ledger: Ledger
    mechanism: Noise | None = None
    budget: Budget | None = None
    randomness: str = "seeded stream (simulation)"
    masks: Masks | None = None
    _waiting: dict[tuple[str, int, str], Row] = field(default_factory=dict)
    _tallies: dict[str, Tally] = field(default_factory=dict)

    def gate(self, silos: Sequence[str], round: int, observer: str = SERVER) -> Gate:
        """Cut the gate of some silos in one round.

        Parameters
        ----------
        silos : Their names; axis 0 of all values is in this order.
        round : The round, from 0.
        observer : Who sees what leaves, a word of `privacy.observers`; by default the server.
        """
        return Gate(self, silos, round, observer)

    def admit(self, row: Row) -> None:
        """Keep a row for the next `sync`; refuse it if it exceeds the budget or repeats a place with another value."""
        known = self.ledger.find(row.place)
        if known is not None:
            if known != row:
                raise DamageError(
                    f"silo {row.silo}, round {row.round}, {row.release_point}",
                    "the value that was released there before",
                    "found another one: the data, the plan or the software changed since the run was interrupted",
                    "Put them back, or start a new run in a new folder; what was spent stays spent.",
                )
            return
        if row.place in self._waiting:
            raise LeakError(
                f"silo {row.silo}, round {row.round}",
                "one release per release point and round, so that no noise is used twice",
                f"release point {row.release_point!r} was used again",
                "Give each release its own release point.",
            )
        tally = self.afford(row)
        if tally is not None:
            tally.add(row)
        self._waiting[row.place] = row

    def afford(self, row: Row) -> Tally | None:
        """Refuse a row that its silo's budget does not cover; returns what the budget is counted with."""
        budget = self.budget
        if budget is None or row.observer in budget.trusted or self.ledger.find(row.place) is not None:
            return None
        tally = self._tallies.get(row.silo)
        if tally is None:
            tally = self._tallies[row.silo] = Tally(budget.epsilon, budget.delta, budget.planned)
            for known in self.ledger.of(row.silo):
                if known.observer not in budget.trusted:
                    tally.add(known)
        if not tally.fits(row):
            raise BudgetError(
                f"silo {row.silo}, round {row.round}, {row.release_point}",
                f"a total of at most epsilon {budget.epsilon:g} at delta {budget.delta:g}",
                f"{tally.cost().epsilon:.4g} is spent and this release would make it {tally.cost(row).epsilon:.4g}",
                "It was not made. Plan fewer rounds, more noise, or a larger budget in a new run.",
            )
        return tally

    def mark_key(self, *place: str | int) -> bytes:
        """The key of a row's digest. Under a budget nobody without the run's root can learn anything from the digest:
        a ledger has many readers, and a row may be about a sum that only one trusted server may see."""
        return b"" if self.budget is None else hashlib.sha256(repr((self.root, place)).encode()).digest()

    @property
    def waiting(self) -> list[Row]:
        """Rows that the next `sync` writes."""
        return list(self._waiting.values())

    def sync(self) -> None:
        """Write the waiting rows in the order of their silos, whatever order the engine took; then messages may go."""
        if self._waiting:
            self.ledger.append(sorted(self._waiting.values(), key=lambda row: row.silo))
            self._waiting.clear()

    def forget(self) -> None:
        """Drop the waiting rows: their values were never sent, and what is not in the ledger never happened."""
        self._waiting.clear()
        self._tallies.clear()

    def spent(self, silo: str, delta: float, observer: str = SERVER) -> Cost:
        """Compute what a silo's rows cost at `delta` against an observer.

        Parameters
        ----------
        silo : The silo's name.
        delta : The delta that the cost is for.
        observer : Who looks: "server", "own server", "neighbour", "another agent", "other sites", "wire" or "public".
        """
        hidden = hidden_from(observer)
        return cost([row for row in self.ledger.of(silo) if row.observer not in hidden], delta)
