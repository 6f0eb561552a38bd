"""Test whether rows without a level common to all nodes have negative relations, or a Laplacian is enough.

The joint likelihood of all rows together gives each edge's probability and sign. A lost level leaves weak positive
relations behind, about 1/d, so stronger ones are counted. Relations are taken for negative if there are ten rows per
node and 15 % of these edges are negative: of 253 positive truths behind privacy noise none was, of 94 with half of
their edges negative four in five were, least often graphs of 16 nodes.
"""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array
from silograph.kernels.levels import with_level
from silograph.methods.joint_graphs import learn_graphs, strengths_of

_ROWS_A_NODE = 10.0
_SURE, _SHARE, _AT_LEAST = 0.9, 0.15, 3  # probability of a sure edge; the share and number of negative ones


def has_negative(moment: Array, rows: float) -> bool:
    """Test `moment` (d, d) of so many rows, or effective rows."""
    nodes = len(moment)
    if rows < _ROWS_A_NODE * (nodes - 1):
        return False
    # With the level that makes graphs sparsest, pairs that a dense graph does not join would look negative.
    found = learn_graphs(with_level(moment[None])[0], np.array([rows]))
    sure = (found.probability[0] > _SURE) & (strengths_of(found.precision)[0] > 2.0 / nodes)
    negative = np.count_nonzero(sure & (found.signs[0] < 0))
    return bool(negative >= max(_AT_LEAST, _SHARE * np.count_nonzero(sure)))
