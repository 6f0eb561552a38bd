"""Each node's nearest neighbours: exact, by blocks of inner products, or approximate, by faiss (the extra `knn`)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.kernels.dual_newton import Columns

Search = Literal["exact", "approximate"]

BLOCK = 1 << 25  # bytes of distances at a time
_LINKS = 32  # neighbours of every node in the approximate search's own graph


def node_rows(signals: Array) -> Array:
    """A row for every node, minus the part common to all nodes: this does not change distances and keeps their
    digits."""
    kind = np.float32 if signals.dtype == np.float32 else np.float64
    if not np.isfinite(signals).all():
        raise InputError("signals", "finite numbers", "some are not")
    return np.ascontiguousarray((signals - signals.mean(axis=1, keepdims=True)).T, dtype=kind)


def exact(y: Array, asked: NDArray[np.intp], size: int) -> tuple[Columns, Array]:
    """The `size` nearest nodes of those asked, and a lower bound for all others, by blocks of inner products."""
    nodes, signals = y.shape
    length = np.einsum("an,an->a", y, y)
    who = np.empty((len(asked), size), np.int32)
    reach = np.empty(len(asked))
    # An inner product of n numbers is off by at most n u |x||y|, and a distance is made of four of them.
    slack = 8.0 * (signals + 4) * float(np.finfo(y.dtype).eps) * float(length.max(initial=0.0))
    block = max(1, BLOCK // (nodes * y.itemsize))
    for k in range(0, len(asked), block):
        some = asked[k : k + block]
        _keep_nearest(y[some] @ y.T, length, some, who[k : k + block], reach[k : k + block])
    return who, np.maximum(reach - slack, 0.0) / signals


@njit(cache=True)
def _keep_nearest(inner: Array, length: Array, asked: NDArray[np.intp], who: Columns, reach: Array) -> None:
    """Find, from inner products (m, d), the nearest nodes and the distance of the farthest of them."""
    nodes, size = length.size, who.shape[1]
    heap = np.empty(size)  # the largest first
    for i in range(asked.size):
        row, names, own = inner[i], who[i], length[asked[i]]
        heap[:] = np.inf
        names[:] = asked[i]
        for b in range(nodes):
            x = own + length[b] - 2.0 * row[b]
            if x < heap[0] and b != asked[i]:
                at = 0
                while True:
                    child = 2 * at + 1
                    if child >= size:
                        break
                    if child + 1 < size and heap[child + 1] > heap[child]:
                        child += 1
                    if heap[child] <= x:
                        break
                    heap[at], names[at] = heap[child], names[child]
                    at = child
                heap[at], names[at] = x, b
        reach[i] = heap[0] if size < nodes - 1 else np.inf


def approximate(y: Array, size: int) -> Columns:
    try:
        import faiss
    except ImportError:
        raise InputError(
            "nearest neighbours",
            "faiss for the approximate search",
            "it is not installed",
            "pip install 'silograph[knn]'",
        ) from None
    points = np.ascontiguousarray(y, dtype=np.float32)
    index = faiss.IndexHNSWFlat(points.shape[1], _LINKS)
    index.hnsw.efSearch = max(64, 2 * size)
    index.add(points)
    _, found = index.search(points, size + 1)  # a node finds itself, usually first
    own = np.arange(len(points), dtype=np.int32)[:, None]
    found = np.where(found < 0, own, found).astype(np.int32)
    # If a node did not find itself (equal signals), drop the farthest instead.
    last = (found == own).argmax(1)
    last[~(found == own).any(1)] = size
    keep = np.ones(found.shape, bool)
    keep[np.arange(len(found)), last] = False
    return np.ascontiguousarray(found[keep].reshape(len(found), size))
