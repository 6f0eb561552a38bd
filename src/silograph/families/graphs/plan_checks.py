"""What a plan of consensus graphs may say of its tables and of its numbers, whichever learner it is for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.run.sections import public

if TYPE_CHECKING:
    from silograph.families.graphs.plan import ConsensusGraph, GraphPlan

MOST_RESAMPLES = 10_000


def check_method(method: ConsensusGraph) -> None:
    for name in ("alpha", "beta", "nu", "lam", "degree", "edges", "step", "tolerance"):
        value = getattr(method, name)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise InputError(wording.setting(public(name)), "a number above 0", f"found {value}")
    for name in ("density", "consensus_density"):
        value = getattr(method, name)
        if value is not None and not 0.0 < value <= 1.0:
            raise InputError(wording.setting(name), "a share of all pairs, above 0 and at most 1", f"found {value}")
    if method.confidence is not None and not 0.0 < method.confidence <= 1.0:
        raise InputError(wording.setting("confidence"), "a number above 0 and at most 1", f"found {method.confidence}")
    for name in ("zeta", "threshold"):
        value = getattr(method, name)
        if value is not None and not (math.isfinite(value) and value >= 0.0):
            raise InputError(wording.setting(public(name)), "a number from 0 up", f"found {value}")
    for name in ("rounds", "local_steps"):
        value = getattr(method, name)
        if value is not None and value < 1:
            raise InputError(wording.setting(public(name)), "a whole number from 1 up", f"found {value}")
    if method.momentum is not None and not 0.0 <= method.momentum < 1.0:
        raise InputError(wording.setting("momentum"), "a number from 0 up to, but not, 1", f"found {method.momentum}")
    said = [name for name in ("degree", "density", "edges", "beta") if getattr(method, name) is not None]
    if len(said) > 1:
        todo = "Degree, density and edges say the same and set beta; leave all but one out."
        raise InputError(
            wording.settings(), "one of degree, density, edges and beta", f"found {' and '.join(said)}", todo
        )
    for chosen, by in (("lam", "consensus_density"), ("nu", "coupling_by")):
        if getattr(method, chosen) is not None and getattr(method, by) not in (None, "rule"):
            raise InputError(wording.setting(by), f"no {public(chosen)}, which it chooses", "found both")
    if method.coupling_by == "held-out" and method.consensus_density is not None:
        todo = "Leave one out: the path is of one lambda, and a wanted density would ask for another at every strength."
        raise InputError(wording.setting("coupling_by"), "no consensus_density beside held-out", "found both", todo)
    if method.resamples is not None and not 0 <= method.resamples <= MOST_RESAMPLES:
        raise InputError(
            wording.setting("resamples"), f"a whole number from 0 to {MOST_RESAMPLES}", f"found {method.resamples}"
        )
    if method.solver == "paper" and method.zeta == 0.0:
        raise InputError(
            wording.setting("zeta"), "a number above 0 for the papers' solver", "found 0", "The papers' step needs it."
        )
    if method.solver == "paper":
        for name, plain in (("consensus_density", None), ("coupling_by", "rule"), ("resamples", None)):
            if getattr(method, name) != plain:
                raise InputError(wording.setting(name), "the exact solver", "the papers' solver has no such setting")
    if method.solver == "exact":
        for name in ("form", "local_steps", "step", "momentum"):
            if getattr(method, name) is not None:
                raise InputError(
                    wording.setting(public(name)), "the solver 'paper'", "the exact solver has no such setting"
                )


def check_data(plan: GraphPlan) -> None:
    data = plan.data
    if data.standardise and data.scale not in (None, "own"):
        raise InputError(
            wording.setting("standardise"), "none beside scale", f"found it and {data.scale!r}", "Leave it out."
        )
    if data.neighbours is not None and data.neighbours < 1:
        raise InputError(wording.setting("neighbours"), "a whole number from 1 up", f"found {data.neighbours}")
    if data.search is not None and data.neighbours is None:
        raise InputError(wording.setting("search"), "how many neighbours to search for", "found none")
    if data.neighbours is not None:
        if data.candidates is not None:
            raise InputError(wording.setting("neighbours"), "neighbours or a list of candidates", "found both")
        if plan.method.solver != "exact":
            raise InputError(wording.setting("neighbours"), "the exact solver", "found the papers' solver")
    if plan.privacy is None:
        return
    leaks = (
        ("neighbours", data.neighbours, None, "who is near whom would be revealed in the clear"),
        ("coupling_by", plan.method.coupling_by, "rule", "signals that are held out would be read in the clear"),
        ("resamples", plan.method.resamples or None, None, "resampling would read the signals again"),
    )
    for name, value, plain, why in leaks:
        if value != plain:
            raise InputError(wording.setting(name), "none with privacy", f"found {value}: {why}, unaccounted")


def check_unit_column(plan: GraphPlan) -> None:
    if plan.data.unit_column is None:
        return
    where = wording.setting("unit_column")
    if not plan.data.unit_column.strip():
        raise InputError(where, "the name of a column", "found an empty one")
    if plan.privacy is None:
        raise InputError(
            where, "a privacy budget, whose protected unit it names", "found none", "Add an epsilon, or leave it out."
        )
    if plan.privacy.mode == "per-round":
        raise InputError(where, "one release, where a person's signals can be bounded", "found noise in every round")
    if plan.data.nodes_in != "columns":
        raise InputError(where, "nodes in columns", "found nodes in rows", "Transpose the tables.")
