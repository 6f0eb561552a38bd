"""Sums of what silos contribute, by a trusted server or under masks, and their rows in the ledger."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from silograph.core.errors import LeakError
from silograph.core.types import Array, BoolArray
from silograph.privacy.bound import CLIPPED_AGENT, REPLACE_ONE, Within
from silograph.privacy.flooding import Joined
from silograph.privacy.masking import MaskedSum, Masks, Summands, masked_sums
from silograph.privacy.observers import EVERYBODY, OWN_SERVER
from silograph.privacy.released import Sealed, Total, sealed_rows
from silograph.privacy.secure_messages import Total as SumTotal

if TYPE_CHECKING:
    from silograph.privacy.gate import Gate


class SummedError(LeakError):
    """A silo was asked for a second sum at one release point. The row of the first sum is in its ledger."""

    code = "summed"


# ---- at the server ---------------------------------------------------------------------------------------------------


def plain_total(gate: Gate, sealed: Sealed, place: NDArray[np.intp]) -> Total:
    """Add up vectors at servers that see each one, as their ledgers say; `place[k]` is the server of vector k."""
    value, servers = sealed_rows(sealed), len(gate.silos)
    counts = np.bincount(place, minlength=servers).astype(np.float64)
    sums = np.zeros((servers, value.shape[1]))
    for column in range(value.shape[1]):
        sums[:, column] = np.bincount(place, value[:, column], servers)
    for server, part, count in zip(gate.silos, sums, counts, strict=True):
        if count:
            why = f"{count:.0f} agents trust their own server with their updates"
            gate.admit_open(server, sealed.release_point, part, OWN_SERVER, why)
    return Total(sums, counts, False, np.ones(len(place), dtype=np.bool_))


def masked_total(
    gate: Gate,
    masks: Masks,
    sealed: Sealed,
    place: NDArray[np.intp],
    names: Sequence[str],
    joined: Joined | None = None,
) -> Total:
    """Add up vectors under masks, so that a server sees the sum alone, with the silos' noise if the mechanism adds it
    in silos; `names` are those of the vectors. If the protected unit is within a silo's vector, every silo of the sum
    gets a row, else its server.

    There is a sum for every server, or one for all that are `joined`: then each of these servers has the same sum, and
    a row for it if any of its silos took part. Some of them may be elsewhere: they then know as much.
    """
    door, servers, length = gate.door, len(gate.silos), sealed_rows(sealed).shape[1]
    sums, counts, noise = np.zeros((servers, length)), np.zeros(servers), np.zeros(servers)
    summed = np.zeros(len(place), dtype=np.bool_)
    with closing(_totals(gate, sealed, _planned(gate, masks, sealed, place, names, joined))) as totals:
        for plan, total, paid in totals:
            sums[plan.cells], counts[plan.cells] = total.values, len(total.survivors)
            noise[plan.cells] = plan.asked.cohort.noise_of(len(total.survivors))
            summed[plan.members] = [name in total.survivors for name in plan.here]
            payers = plan.servers if sealed.within is None and paid else [name for name in plan.here if name in paid]
            for payer in payers:
                row = gate.row(payer, sealed.release_point, sums[plan.cells[0]], **plan.facts)
                # Elsewhere a sum is made once: after a kill at this end it does not arrive a second time.
                if sealed.elsewhere is None or door.ledger.find(row.place) is None:
                    door.admit(row)
    return Total(sums, counts, gate.own_noise is not None, summed, noise)


class _Planned(NamedTuple):
    """A sum that its payers can afford: the vectors here, by number and name, the cells that get the sum, their servers
    and how these are linked, and the facts of its rows."""

    asked: MaskedSum
    members: NDArray[np.intp]
    here: tuple[str, ...]
    cells: NDArray[np.intp]
    servers: list[str]
    linked: tuple[Mapping[str, int], BoolArray] | None
    facts: dict[str, Any]


def _planned(
    gate: Gate,
    masks: Masks,
    sealed: Sealed,
    place: NDArray[np.intp],
    names: Sequence[str],
    joined: Joined | None,
) -> Iterator[_Planned]:
    nothing = np.zeros(sealed_rows(sealed).shape[1])
    group = np.arange(len(gate.silos)) if joined is None else joined.group
    for g, region in enumerate(gate.silos if joined is None else joined.names):
        members, cells = np.flatnonzero(group[place] == g), np.flatnonzero(group == g)
        here = there = tuple(names[int(k)] for k in members)
        servers = [gate.silos[int(c)] for c in cells if (place[members] == c).any()]
        homes = None if joined is None else len(set(joined.server[place[members]].tolist()))
        if joined is not None and sealed.elsewhere is not None and (of := sealed.elsewhere.everybody(here)):
            there, homes = tuple(sorted(of)), len(set(of.values()))
        if len(there) < masks.minimum:
            continue
        asked, linked = sum_of(gate, sealed, there, region), None
        facts = _facts(gate, asked, homes)
        for payer in servers if sealed.within is None else here:
            gate.door.afford(
                gate.row(payer, sealed.release_point, nothing, **facts)
            )  # before a server can know the sum
        if joined is not None:
            linked = dict(zip(here, joined.server[place[members]].tolist(), strict=True)), joined.linked
        yield _Planned(asked, members, here, cells, servers, linked, facts)


def _totals(
    gate: Gate, sealed: Sealed, plans: Iterator[_Planned]
) -> Generator[tuple[_Planned, SumTotal, Collection[str]]]:
    """Make the sums in their order: elsewhere one by one, here together. Return with each who may have paid for it."""
    if sealed.elsewhere is not None:
        for plan in plans:
            yield plan, *sealed.elsewhere.total(plan.asked)
        return
    afforded, value = list(plans), sealed_rows(sealed)
    vectors = [dict(zip(plan.here, value[plan.members], strict=True)) for plan in afforded]
    wanted = [Summands(each, plan.asked, plan.linked) for each, plan in zip(vectors, afforded, strict=True)]
    with closing(masked_sums(wanted, gate.door.root)) as totals:
        for plan, total in zip(afforded, totals, strict=True):
            yield plan, total, plan.here


# ---- at both ends ----------------------------------------------------------------------------------------------------


def sum_of(gate: Gate, sealed: Sealed, members: tuple[str, ...], region: str) -> MaskedSum:
    """Describe a sum under masks: the server asks for it, and an agent checks what it is asked."""
    masks, length = gate.door.masks, sealed_rows(sealed).shape[1]
    if masks is None or sealed.clip is None:
        raise LeakError(
            f"masks at {sealed.release_point!r}", "clipped vectors, whose sum cannot overflow", "found others"
        )
    share, noise = sealed.share, gate.own_noise
    if noise is not None and share != 1.0:
        noise = noise.with_share(share)
    return MaskedSum(
        members, gate.round, region, sealed.release_point, sealed.clip, length, masks, noise, sealed.within
    )


def _facts(gate: Gate, asked: MaskedSum, homes: int | None = None) -> dict[str, Any]:
    """The ledger's facts about a sum under masks, over the agents of one server or, if these are joined, of `homes`."""
    how, noise, cohort = asked.masks.how, asked.noise, asked.cohort
    of = f"{len(asked.members)} agents of {homes} server{'' if homes == 1 else 's'}"
    if noise is None:
        if asked.within is not None:  # the sum of a star's sites is for everybody
            why = f"masks hide each of {len(asked.members)} sites, not their sum ({how})"
            return {"observer": EVERYBODY, "mechanism": "reveal", "why": why}
        if homes is not None:
            return {"observer": EVERYBODY, "mechanism": "reveal", "why": f"masks hide {of}, not their sum ({how})"}
        why = f"masks hide {len(asked.members)} agents from their server, not their sum ({how})"
        return {"observer": OWN_SERVER, "mechanism": "reveal", "why": why}
    within = asked.within or Within(cohort.l2, CLIPPED_AGENT, f"each update clipped to {asked.clip:g}")
    who = "agents" if asked.within is None else "sites"
    whose = f"{len(asked.members)} {who}" if homes is None else of
    return {
        "observer": EVERYBODY,
        "mechanism": noise.name,
        "l2": cohort.l2,
        "noise": cohort.charged,
        "protected_unit": within.protected_unit,
        "relation": REPLACE_ONE,
        "randomness": gate.door.randomness,
        "why": f"{within.why}; sum of {whose}, each of whom adds a share of the noise; "
        f"{cohort.contributors} of them are counted on ({how})",
    }


# ---- in the silo -----------------------------------------------------------------------------------------------------


def hand_over(gate: Gate, sealed: Sealed) -> None:
    """Write the rows of silos that hand their updates to their own server without masks."""
    for silo, part in zip(gate.silos, sealed_rows(sealed), strict=True):
        gate.admit_open(
            silo, sealed.release_point, part, OWN_SERVER, "the own server is trusted with this silo's updates"
        )


def refuse_second(gate: Gate, release_point: str) -> None:
    """Refuse a second sum at one place: with other silos in it, it would show the difference."""
    (silo,) = gate.silos
    if gate.door.ledger.find((silo, gate.round, release_point)) is not None:
        raise SummedError(
            f"silo {silo}, round {gate.round}", f"to be added up once at {release_point!r}", "it was before"
        )


def join(gate: Gate, asked: MaskedSum, vector: Array) -> None:
    """Write the silo's own row before anything leaves that could add its vector to a sum."""
    (silo,) = gate.silos
    refuse_second(gate, asked.release_point)
    gate.door.admit(gate.row(silo, asked.release_point, vector, **_facts(gate, asked)))
    gate.sync()
