"""Where a learner has no way with gaps, or with nodes that a site lacks: refused before anything runs or is spent."""

from __future__ import annotations

import numpy as np

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.data.gaps import refuse_gaps, refuse_lacking, with_gaps
from silograph.data.silos import Elsewhere, Silos
from silograph.data.tables import shortened
from silograph.families.graphs.neighbours import needs_neighbours
from silograph.families.graphs.plan import GraphPlan, Privacy, learner_of
from silograph.kernels.gaps import pair_rows

_LEAST_COMMON = 2


def check_gaps(plan: GraphPlan, silos: Silos) -> None:
    """Under privacy nothing may depend on whether there are gaps, but for noise in every round, which says so."""
    if plan.privacy is not None:
        _check_unlike(plan, plan.privacy, silos)
        if plan.privacy.mode == "per-round":
            refuse_gaps(
                silos, "complete rows for noise in every round", "Use the mode 'one-release', or fill the gaps."
            )
        return
    if not with_gaps(silos):
        return
    if learner_of(plan, len(silos.nodes)) == "likelihood":
        common = wording.option("nodes", "common")
        for setting, value in (("reveal", "sum"), ("choose_by", "held-out")):
            if getattr(plan.method, setting) == value:
                refuse_lacking(silos, f"{setting} {value}", f"Leave {setting} out, or add {common}.")
                refuse_gaps(silos, f"complete rows for {setting} {value}", f"Leave {setting} out, or fill the gaps.")
        return
    if plan.method.solver == "paper":
        todo = f"Take the exact solver, or add {wording.option('nodes', 'common')}."
        refuse_lacking(silos, "the papers' Algorithm 1, which couples whole graphs", todo)
    if plan.data.candidates is not None or needs_neighbours(plan, len(silos.nodes)):
        refuse_gaps(silos, "complete rows for candidate edges", "Fill the gaps, or leave out candidates or neighbours.")
    if plan.method.coupling_by == "held-out":
        todo = f"Leave it out, or add {wording.option('nodes', 'common')}."
        refuse_lacking(silos, "coupling_by held-out", todo)
        refuse_gaps(silos, "complete rows for coupling_by held-out", "Fill the gaps, or leave it out.")
    _check_pairs(silos)


def _check_unlike(plan: GraphPlan, privacy: Privacy, silos: Silos) -> None:
    """By the names of columns alone, which are public."""
    todo = f"Nothing was spent. Add {wording.option('nodes', 'common')}: only the nodes that every site has."
    if learner_of(plan, len(silos.nodes)) == "votes":
        refuse_lacking(silos, "votes: a person votes for edges between any two nodes", todo)
    if privacy.mode in ("per-round", "correlated"):
        refuse_lacking(silos, f"the mode {privacy.mode}, where all sites share one release", todo)
    common = set(silos.nodes).difference(*silos.lacks)
    if len(common) < _LEAST_COMMON:
        expected = f"at least {_LEAST_COMMON} nodes that every site has, with privacy: a signal's level is their mean"
        raise InputError("sites", expected, f"there are {len(common)}", "Nothing was spent. Are they named alike?")


def _check_pairs(silos: Silos) -> None:
    """The papers' model joins every node to some other, which takes a row that has both."""
    for k, (name, signals) in enumerate(zip(silos.names, silos.signals, strict=True)):
        if isinstance(signals, Elsewhere):
            continue
        together = pair_rows(np.asarray(signals))
        alone = (together - np.diag(np.diagonal(together))).max(0) == 0.0
        if silos.lacks:
            alone &= [node not in silos.lacks[k] for node in silos.nodes]
        if alone.any():
            node = silos.nodes[int(alone.argmax())]
            where, todo = f"site {shortened(name)}, column {shortened(node)}", wording.option("drop", [node])
            raise InputError(where, "rows with another value beside it", "there is none", f"Leave it out: {todo}.")
