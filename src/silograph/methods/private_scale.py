"""Private means and spreads of columns as a first step: two small releases, after which all rows have one scale.

First sites count the differences of pairs of rows in every octave, then their rows next to every point of a grid that
follows from the spreads (`kernels/column_scale.py`). The server adds up the counts of all sites and sends everybody one
centre and one spread per column; with them each site scales its rows and continues with the method that learns. All
that the server does is post-processing, and a server that sends other numbers learns no more from a site: rows are
clipped after any scaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from silograph.core.errors import SilenceError
from silograph.core.types import Array, Carry
from silograph.kernels.column_scale import SURE, expected_score, told_centres, told_spreads
from silograph.kernels.edges import pairs
from silograph.kernels.own_nodes import own_of
from silograph.methods.base import Limits, Outcome, Outlet, Plain, Private, Rows, ServerOutlet, Start, Up, put, take
from silograph.methods.private_graph import PATIENCE, ReleasedConsensus
from silograph.methods.summed_graph import SummedConsensus
from silograph.methods.unlike_sites import UnlikeReleases, UnlikeSum
from silograph.privacy.bound import Bounded
from silograph.privacy.masking import planned
from silograph.privacy.released import Message, Sent
from silograph.tasks.column_scale import CENTRES, SPREADS, RawSignals
from silograph.topology import Topology

LEAST_SHARE = 0.1  # of the budget, for both releases together
_MARGIN = 6.0  # deviations of noise by which expected spreads exceed the threshold
_STAGES = (SPREADS, CENTRES)
_FARTHEST, _WIDEST = 1e30, 2.0**70
_MOST_BINARY = 0.5  # the spread of a column of 0 and 1 is at most this
_RAREST = 0.05  # a rarer level is scaled as if it had this share: noise must not make its spread 0


@dataclass(frozen=True)
class ScaledFirst(Plain):
    """`inner` learns from scaled rows. Each of the two releases has `share` of the precision of inner's. `binary` nodes
    hold 0 and 1, as everybody knows: levels of words do."""

    inner: ReleasedConsensus | SummedConsensus
    share: float
    binary: tuple[int, ...] = ()

    @property
    def raw(self) -> RawSignals:
        return RawSignals(self.inner.task)

    @property
    def counts(self) -> tuple[int, ...]:
        return self.inner.counts

    @property
    def summed(self) -> bool:
        return isinstance(self.inner, SummedConsensus)

    def start(self, topo: Topology) -> Start:
        first, silos, nodes = self.inner.start(topo), len(topo.silos), self.inner.task.nodes
        scale: Carry = {
            "stage": np.int64(0),
            "waited": np.int64(0),
            "centre": np.zeros((len(topo.servers), nodes)),
            "spread": np.ones((len(topo.servers), nodes)),
            "told": np.ones((len(topo.servers), nodes), bool),
        }
        servers = {**first.servers, **{f"scale {name}": value for name, value in scale.items()}}
        carry, public = first.carry, first.public
        if not self.summed:
            carry = {**carry, **{f"{point} sent": np.zeros(silos, bool) for point in _STAGES}}
            public = {**public, **{point: np.zeros((silos, self.raw.size(point))) for point in _STAGES}}
        return Start(carry, servers, self._down(servers, topo), public)

    def limits(self) -> dict[str, Limits]:
        return {
            "stage": Limits(0.0, 2.0, whole=True),
            "centre": Limits(-_FARTHEST, _FARTHEST),
            "spread": Limits(1.0 / _WIDEST, _WIDEST),
        }

    def _down(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """The message to every silo: the next step, and the scale of columns as far as it is known."""
        stage = np.full((len(topo.silos), 1), float(servers["scale stage"]))
        return {"stage": stage, **{name: servers[f"scale {name}"][topo.home] for name in ("centre", "spread")}}

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        """Make each release once; a silo that is asked again sends the same values again."""
        stage, (centre, spread) = int(down["stage"].value[0, 0]), (down[name].value for name in ("centre", "spread"))
        if stage == len(_STAGES):
            own, sent = self.inner.local(carry, {}, self.raw.statistic(data, centre, spread), gate)
            return {**carry, **own}, sent
        point = _STAGES[stage]
        if self.summed:
            bounded = self._counts(point, data, spread, gate)
            return carry, {point: gate.contribute(bounded, point, self.raw.longest(self.counts), self.share)}
        fresh = np.flatnonzero(~carry[f"{point} sent"])
        if fresh.size:
            there = gate.rows(fresh)
            bounded = self._counts(point, take(data, fresh), spread[fresh], there)
            released = {point: there.release(bounded, point, share=self.share)}
            now = put({point: carry[point]}, fresh, released)
            carry = {**carry, **now, f"{point} sent": np.ones_like(carry[f"{point} sent"])}
        return carry, {point: carry[point]}

    def _counts(self, point: str, data: Private, spread: Array, gate: Outlet) -> Bounded:
        if point == CENTRES:
            return self.raw.centres(data, spread)
        # The choice of rows to compare must not depend on their values, nor on a table's order.
        return self.raw.spreads(data, gate.uniforms(int(data["count"].max()), "pairs of rows"))

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        """Continue once all have answered, or the server stops waiting for the others."""
        stage = int(servers["scale stage"])
        if stage == len(_STAGES):
            own, message = self.inner.gather(servers, up, topo, gate)
            return {**servers, **own}, message
        point, waited = _STAGES[stage], int(servers["scale waited"]) + 1
        servers = {**servers, "scale waited": np.int64(waited)}
        if len(up.rows) < len(topo.silos) and waited < PATIENCE:
            return servers, {}
        if not self.summed:
            return self._read(servers, point, up.values[point].sum(0)[None], [self.noise(len(up.rows))], up.rows), {}
        total = gate.total(up.sealed[point], up.rows, topo.home, topo.silos)
        if total.counts.all() and total.noise is not None:
            return self._read(servers, point, total.sums, total.noise, up.rows[total.summed]), {}
        if waited >= PATIENCE:
            todo = "Ask them, and run again: no sum was made. What a ledger says was spent is spent."
            raise SilenceError("secure sum", "enough sites to the end", f"{len(up.rows)} answered", todo)
        return servers, {}

    def _read(self, servers: Carry, point: str, cells: Array, noise: Array | list[float], heard: Rows) -> Carry:
        """Read the scale from the counts of the sites that were heard, server by server."""
        spread, centre = servers["scale spread"].copy(), servers["scale centre"].copy()
        told, binary = servers["scale told"].copy(), list(self.binary)
        for k, deviation in enumerate(noise):
            counts = cells[k].reshape(self.inner.task.nodes, -1)
            if point == SPREADS:
                spread[k], sure = told_spreads(counts, float(deviation), pairs_compared(self.inner, heard))
                # That of 0 and 1 follows from their mean.
                spread[k, binary], sure[binary] = _MOST_BINARY, True
            else:
                centre[k], sure = told_centres(counts, spread[k], float(deviation))
                p = np.clip(centre[k, binary], _RAREST, 1.0 - _RAREST)
                spread[k, binary] = np.sqrt(p * (1.0 - p))
            told[k] &= sure
            if point == CENTRES and told[k].any():
                spread[k, ~told[k]] = _WIDEST  # columns without a scale must not swamp the others
        known = {"scale spread": spread, "scale centre": centre, "scale told": told}
        return {**servers, **known, "scale stage": servers["scale stage"] + 1, "scale waited": np.int64(0)}

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        if servers["scale stage"] == len(_STAGES):
            own, _ = self.inner.settle(servers, across, topo)
            servers = {**servers, **own}
        return servers, self._down(servers, topo)

    def done(self, servers: Carry) -> bool:
        return servers["scale stage"] == len(_STAGES) and self.inner.done(servers)

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Return the outcome of `inner`, with the scale. A column without an estimated scale has no edges."""
        found, told = self.inner.outcome(servers, delivered, topo), servers["scale told"][0]
        a, b = pairs(self.inner.task.nodes)
        arrays = {**found.arrays, "centre": servers["scale centre"][0], "spread": servers["scale spread"][0]}
        for name in ("graph", "consensus", "signs", "consensus_signs"):
            if name in arrays:
                arrays[name] = arrays[name] * (told[a] & told[b])
        more = {"rounds": found.facts["rounds"] + len(_STAGES), "untold": np.flatnonzero(~told).tolist()}
        return Outcome(arrays, {**found.facts, **more})

    def noise(self, sites: int) -> float:
        """The deviation of the noise in a count of so many sites."""
        return count_noise(self.inner, self.share, sites)


def count_noise(inner: ReleasedConsensus | SummedConsensus, share: float, sites: int) -> float:
    """The same for any share, at the larger of the two releases."""
    raw = RawSignals(inner.task)
    bound, size = raw.bound, raw.size(CENTRES)
    if isinstance(inner, ReleasedConsensus):
        own = inner.mechanism.sampled(share)
        assert own is not None, "noise that cannot be shared"
        return math.sqrt(sites) * own.deviation(bound.l2, size)
    assert inner.mechanism is not None
    made = planned(sites, raw.longest(inner.counts), size, inner.mechanism.with_share(share), bound)
    return made.noise_of(sites)


def pairs_compared(inner: ReleasedConsensus | SummedConsensus, heard: Rows) -> Array:
    """How many pairs of rows, or of persons, these sites compare in every column, (d,)."""
    own = np.ones((len(inner.counts), inner.task.nodes), dtype=np.bool_)
    if isinstance(inner, UnlikeReleases | UnlikeSum):
        own = own_of(inner.lacks, inner.task.nodes)
    return np.asarray((np.array(inner.counts) // 2)[heard] @ own[heard], dtype=float)


def share_needed(inner: ReleasedConsensus | SummedConsensus, most: float = math.inf) -> float:
    """The share of the budget with which the spreads of normal columns stand out, from public numbers alone: more than
    1 if no share is enough. `inner` has the mechanism of the whole budget. A column that fewer rows have needs more;
    one that needs more than `most` is left without edges, unless all do."""
    noise = count_noise(inner, 1.0, len(inner.counts))
    pairs_of = pairs_compared(inner, np.arange(len(inner.counts)))
    needed = np.array([_share_of(expected_score(float(pairs)), noise) for pairs in pairs_of])
    enough = needed[needed <= most]
    return float(enough.max() if enough.size else needed.min())


def _share_of(expected: float, noise: float) -> float:
    needed = 2.0 * ((SURE + _MARGIN) * noise / expected) ** 2 if expected else math.inf  # noise: 1 / sqrt(share)
    return max(LEAST_SHARE, needed)


def with_share(inner: ReleasedConsensus | SummedConsensus, share: float) -> ScaledFirst:
    """Means and spreads get `share` of the budget, `inner` the rest; it has the mechanism of the whole budget."""
    rest = 1.0 - share
    if isinstance(inner, SummedConsensus):
        assert inner.mechanism is not None
        lessened: ReleasedConsensus | SummedConsensus = replace(inner, mechanism=inner.mechanism.with_share(rest))
    else:
        noise = inner.mechanism.sampled(rest)
        assert noise is not None, "noise that cannot be shared out"
        lessened = replace(inner, mechanism=noise)
    return ScaledFirst(lessened, 0.5 * share / rest)
