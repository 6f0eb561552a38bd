"""Sample the agents of a round, and check that models settle: shared by methods on a graph of servers."""

from __future__ import annotations

import numpy as np

from silograph.core.errors import InputError, SolverError
from silograph.core.types import Array
from silograph.kernels.draws import Words, draw_key, uniforms
from silograph.methods.base import ANYTHING, Limits, Rows
from silograph.topology import Topology

DIVERGED = 1e9  # times the first round's largest number
_SETTLING = 100.0  # times the first round's largest number: steps that settle become shorter, whatever the model's size
_NOISE = 1e3  # times the protected stride: a first round may be noise to this extent


def check_sample(sample: int | None, topo: Topology) -> None:
    """Refuse a sample that some region cannot give."""
    smallest = int(topo.sizes.argmin())
    if sample is not None and sample > topo.sizes[smallest]:
        raise InputError(
            f"region {topo.servers[smallest]}",
            f"at least {sample} agents, as many as are sampled a round",
            f"it has {topo.sizes[smallest]}",
            "Sample fewer, or leave the sample out to ask all agents.",
        )


def sampled(sample: int | None, seed: int, round: int, ids: Words, topo: Topology) -> Rows | None:
    """Draw `sample` agents of every region, uniformly: those with the smallest draws. None means everybody."""
    if sample is None:
        return None
    draws = uniforms(draw_key(seed, round, "sample"), ids, 1)[:, 0]
    order = np.lexsort((draws, topo.home))
    begin = np.concatenate([[0], np.cumsum(topo.sizes)[:-1]])
    return np.sort(order[(begin[:, None] + np.arange(sample)).ravel()])


def within_reach(stride: float | None) -> Limits:
    """Limits of models that a round moves by at most `stride` plus its noise; no limits if `stride` is None."""
    return ANYTHING if stride is None else Limits(-DIVERGED * _NOISE * stride, DIVERGED * _NOISE * stride)


def check_growth(
    model: Array, first: float, where: str, topo: Topology, why: str, todo: str, moved: Array | None = None
) -> None:
    """Stop if a server's models grow without bound; `first` is the largest number in them after the first round. If
    `moved` in this round is given, also if that is far longer than in the first."""
    least = max(first, np.finfo(float).tiny)
    bad = ~(np.abs(model).reshape(len(model), -1).max(1) <= DIVERGED * least)
    if moved is not None:
        bad |= ~(np.abs(moved).reshape(len(moved), -1).max(1) <= _SETTLING * least)
    if bad.any():
        raise SolverError(
            f"{where}, region {topo.servers[int(bad.argmax())]}",
            "models that settle",
            f"they grow without bound: {why}",
            todo,
        )
