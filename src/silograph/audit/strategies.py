"""Strategies of a dishonest server. Each is played against fresh organisations, for up to `rounds` rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from silograph.audit.hostile import Attacked
from silograph.audit.worlds import OPPOSITE
from silograph.core.types import Array
from silograph.deploy.organisation import LEDGER
from silograph.engines.question import NEVER

_FAR = 10**6  # a round that no plan has
_LAST_STEPS = ("share", "mask", "unmask", "unmask")


@dataclass(frozen=True)
class Strategy:
    """`play(organisations, rounds)` asks anything. `copies`: an older copy of the organisation's folder is put back,
    which no server can do; the releases of all copies together then count as paid."""

    name: str
    words: str
    play: Callable[[Attacked, int], None]
    copies: bool = False
    masked: bool = False  # only with secure sums
    weight: int = 1  # of the time
    least_rounds: int = 1
    most_rounds: float = math.inf
    against: int = OPPOSITE  # the world compared with a loud record


def one_round(at: Attacked, round: int, accepted: int, down: Mapping[str, Array] | None = None) -> bool:
    """Play one round, with a sum over the smallest cohort if there are sums; return whether the victim answered."""
    reply = at.local(round, accepted, down)
    if reply is not None and at.theatre.masked:
        at.add_up(round, reply, at.others[: at.fewest])
    return reply is not None


def _moved(at: Attacked, by: float) -> dict[str, Array]:
    """The method's message down, slightly moved: another question that an honest server might ask."""
    limits = at.theatre.job.method.limits()

    def moved(name: str, value: Array) -> Array:
        return value if limits[name].whole else np.clip(value + by, limits[name].low, limits[name].high)

    return {name: moved(name, value) for name, value in at.theatre.down.items()}


def as_agreed(at: Attacked, rounds: int) -> None:
    for round in range(rounds):
        one_round(at, round, round - 1)
    own = at.theatre.worlds.organisation
    at.ask(own, at.question("deliver", rounds, rounds - 1).pack())
    at.ask(own, at.question("end", rounds, rounds - 1).pack())
    at.ask(own, at.question("local", rounds + 1, rounds).pack())


def again(at: Attacked, rounds: int) -> None:
    for round in range(rounds):
        one_round(at, round, round - 1)
        at.restart()
        one_round(at, round, round - 1)


def never_used(at: Attacked, rounds: int) -> None:
    for round in range(rounds):
        one_round(at, round, NEVER, _moved(at, 1e-3 * round))


def same_round(at: Attacked, rounds: int) -> None:
    for round in range(rounds):
        for number in range(8):
            one_round(at, round, round - 1, _moved(at, 1e-3 * number))
        at.restart()
        one_round(at, round, round - 1, _moved(at, 1.0))


def chosen_rounds(at: Attacked, rounds: int) -> None:
    """Ask for late rounds, in which a schedule may have less noise, then for earlier ones again."""
    last = NEVER
    for round in (*range(_FAR, _FAR + rounds), *range(rounds)):
        last = round if one_round(at, round, last) else last


def early_end(at: Attacked, rounds: int) -> None:
    own = at.theatre.worlds.organisation
    for first in range(0, 3 * rounds, 3):  # a separate round for each: another question in one round is refused
        at.ask(own, at.question("deliver", first).pack())
        one_round(at, first + 1, NEVER)
        at.ask(own, at.question("deliver", first + 2).pack())
    at.ask(own, at.question("end", 3 * rounds).pack())
    one_round(at, 3 * rounds + 1, NEVER)
    at.restart()
    one_round(at, 3 * rounds + 2, NEVER)


def other_plans(at: Attacked, rounds: int) -> None:
    """Ask questions that the organisation did not approve, with an approved one in between."""
    own, good = at.theatre.worlds.organisation, at.question("local", 0)
    few = tuple(good.silos)
    for changed in (
        {"deployment": "0" * 64},
        {"organisation": "somebody"},
        {"silos": ()},
        {"silos": ("nobody",)},
        {"members": ("nobody", *few)},
        {"members": few[:1]},
        {"round": -1},
        {"accepted": 5},
        {"kind": "sum"},
        {"kind": "sum", "sum": {"to": {}}},
        {"down": {**good.down, "more": np.zeros((len(few), 1))}},
        {"down": {name: value[..., None] for name, value in good.down.items()}},
    ):
        at.ask(own, replace(good, **changed).pack())
    blob = good.pack()
    for broken in (b"", b"SLG1", blob[: len(blob) // 2], blob + b"\0", bytes(len(blob))):
        at.ask(own, broken)
    one_round(at, 0, NEVER)


def at_random(at: Attacked, rounds: int) -> None:
    """Ask any of the above in an order of the audit's own, the same in all of its trials."""
    rng, last, others = np.random.default_rng(at.theatre.plot), NEVER, at.others
    for _ in range(8 * rounds):
        round = max(last, 0) + int(rng.choice([-1, 0, 1, 1, 1, 2]))
        accepted = int(rng.choice([last, last, last, last + 1, NEVER]))
        match int(rng.integers(8)):
            case 0:
                at.restart()
            case 1:
                at.ask(at.theatre.worlds.organisation, at.question("deliver", round, accepted).pack())
            case _:
                reply = at.local(round, accepted, _moved(at, float(rng.choice([0.0, 0.0, 1e-3, 1.0]))))
                last = last if reply is None else round
                for _ in range(int(rng.integers(3)) if reply is not None and at.theatre.masked else 0):
                    group = [others[k] for k in rng.permutation(len(others))[: at.fewest + int(rng.integers(2))]]
                    confirming = group if rng.integers(2) else None
                    at.add_up(round, reply or b"", group, confirming, str(rng.choice(_LAST_STEPS)))


def older_copy(at: Attacked, rounds: int) -> None:
    copy = at.keep()
    for number in range(rounds):
        if number:
            at.put_back(copy)
        one_round(at, 0, NEVER, _moved(at, 1e-3 * number))


def older_state(at: Attacked, rounds: int) -> None:
    one_round(at, 0, NEVER)
    copy = at.keep()
    one_round(at, 1, 0)
    at.put_back(copy, ["state.npz"])
    one_round(at, 1, 0, _moved(at, 1e-3))


def older_ledger(at: Attacked, rounds: int) -> None:
    one_round(at, 0, NEVER)
    copy = at.keep()
    one_round(at, 1, 0)
    at.put_back(copy, [LEDGER])
    one_round(at, 1, 0, _moved(at, 1e-3))


# ---- secure sums -----------------------------------------------------------------------------------------------------


def unconfirmed(at: Attacked, rounds: int) -> None:
    """Run in every round one sum for each group of others that can finish it without the victim."""
    for round in range(rounds):
        reply = at.local(round, round - 1)
        for group in at.without_victim() if reply is not None else ():
            at.add_up(round, reply or b"", group, ask=group)


def overlapping(at: Attacked, rounds: int) -> None:
    """Run sums of cohorts that differ in one member, each to the end."""
    others = at.others
    for round in range(rounds):
        reply = at.local(round, round - 1)
        for last in others[at.fewest - 1 : at.fewest + 3] if reply is not None else ():
            at.add_up(round, reply or b"", [*others[: at.fewest - 1], last])


def begun_again(at: Attacked, rounds: int) -> None:
    """Stop sums before or after the masked inputs, then run one with others; and repeat all after a restart."""
    for round in range(rounds):
        for last in ("share", "mask"):
            reply = at.local(round, round - 1)
            if reply is not None:
                at.add_up(round, reply, at.others[: at.fewest], last=last)
                at.add_up(round, reply, at.others[-at.fewest :])
            at.restart()


STRATEGIES = (
    Strategy("as agreed", "every round as planned, then the end, then one more", as_agreed),
    Strategy("asked again", "every question twice, the organisation started anew in between", again),
    Strategy(
        "never used",
        "every answer is said not to have been used, and something else is asked",
        never_used,
        least_rounds=2,
    ),
    Strategy("same round", "other questions in a round that was answered, with restarts", same_round),
    Strategy("chosen rounds", "rounds that no plan has, then all rounds from the first", chosen_rounds, least_rounds=2),
    Strategy("early end", "results before, between and after the rounds; questions after the end", early_end),
    Strategy("other plans", "questions that nobody approved, and bytes that are none", other_plans),
    Strategy("at random", "restarts, rounds, downs, results and cohorts in a random order", at_random),
    Strategy(
        "unconfirmed sums",
        "sums whose others finish them while the victim is not asked to confirm",
        unconfirmed,
        masked=True,
        weight=4,
    ),
    Strategy("overlapping cohorts", "sums in one round whose cohorts differ in one member", overlapping, masked=True),
    Strategy(
        "sums begun again",
        "sums that break off and start again, with others, also after a restart",
        begun_again,
        masked=True,
    ),
    Strategy(
        "older state",
        "the organisation's state put back from an older copy, its ledger not",
        older_state,
        copies=True,
        most_rounds=1,
    ),
    Strategy(
        "older ledger",
        "the organisation's ledger put back from an older copy, its state not",
        older_ledger,
        copies=True,
        most_rounds=1,
    ),
    Strategy(
        "older copy",
        "the organisation's whole folder put back from an older copy, again and again",
        older_copy,
        copies=True,
        least_rounds=2,
    ),
)
