"""The few types every layer shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: What a silo or server remembers between rounds: arrays whose axis 0 is "which silo".
Carry = dict[str, Any]

#: Values that may be written to JSON.
Json = dict[str, Any]

Options = Mapping[str, Any]

#: How silos are simulated: all in one call, one by one, or in groups on a Ray cluster.
EngineName = Literal["vector", "silowise", "ray"]
