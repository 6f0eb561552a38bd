"""What an observer gets from a plan that claims no epsilon against it: attacks on what really leaves.

Each attack says what it was after and how far off it is, relative to the length of the truth. No epsilon is claimed and
none is printed; what is shown is success.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from silograph.core.types import Array, Json
from silograph.families.clusters.job import ClusteredJob
from silograph.families.graphs.job import GraphJob
from silograph.families.meta.job import MetaJob
from silograph.kernels.descent import extrapolate
from silograph.methods.algorithm_one import PaperConsensus
from silograph.methods.base import Method, State, advance, begin
from silograph.methods.choosing import LOG_BETA
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.consensus_graph import BETA, ExactConsensus
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.private_meta import SUPPORT
from silograph.privacy.attacks.duals import gradients_of_steps, parabola
from silograph.privacy.attacks.graphs import distances_of_graph, distances_of_step
from silograph.privacy.attacks.members import by_gradient, by_loss, told
from silograph.privacy.gate import OTHER_SERVERS, Door, Sealed, Sent, hidden_from, sealed_rows
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.unmixing import followed_sum, unmixed_sum
from silograph.run.jobs import Job
from silograph.run.loop import ENGINES
from silograph.tasks.clustered import Proximal

_MOST_ROUNDS = 200  # of a run that is listened to


def exposure(job: Job, observer: str, root: int) -> list[Json]:
    """The attacks that fit the plan and the observer, with what they got."""
    method = job.method
    own = "own server" not in hidden_from(observer)
    star = isinstance(job, GraphJob | MetaJob)
    if observer == "public" or (observer == "neighbour" and star):
        return [RESULTS]
    if isinstance(job, GraphJob) and isinstance(method, ExactConsensus):
        return [_inverted_graph(job, method, root)]
    if isinstance(job, GraphJob) and isinstance(method, PaperConsensus) and method.local_steps == 1:
        return [_inverted_step(job, method, root)]
    if isinstance(job, MetaJob):
        return _members(job, root)
    if isinstance(method, GraphFederation):
        return [OWN_UPDATES] if own and job.masks is None else [_unmixed(job, method, root)]
    if isinstance(job, ClusteredJob) and own and job.masks is None and isinstance(job.method, ClusteredADMM):
        if isinstance(job.task, Proximal) and job.task.loss == "ridge" and job.plan.protect == "none":
            return [_parabola(job, job.method, root)]
        return [OWN_UPDATES]
    return [_found("what is sent", "read as it is", 0.0, "nothing hides it")]


def _found(aim: str, attack: str, off_by: float, words: str) -> Json:
    return {"aim": aim, "attack": attack, "off_by": off_by, "words": words}


RESULTS = _found(
    "what is computed from everybody's records",
    "read as it is",
    0.0,
    "nothing hides the results; an attack needs messages that this observer does not see, and none was run",
)
OWN_UPDATES = _found(
    "an agent's update",
    "read as it is",
    0.0,
    "every agent's update, and with it the gradient of its records, lies before its own server as it is",
)


def _off_by(guess: Array, truth: Array) -> float:
    return float(np.linalg.norm(guess - truth) / max(float(np.linalg.norm(truth)), 1e-300))


class Listener:
    """Runs a job without a folder and writes down what goes up and across, and each server's true sums."""

    def __init__(self, job: Job, root: int) -> None:
        masks = None if job.masks is None else Masks("skipped", job.masks.minimum)
        self.job, self.door = job, Door(root, Ledger(), job.mechanism, masks=masks)
        self.data = job.data()
        self._place = ENGINES["vector"](self.data, job.topo, self.door)
        self.state = begin(job.method, job.topo)
        self.up: Sent = {}
        self.rows = np.arange(len(job.topo.silos))
        self.across: dict[str, Array] = {}

    def listen(self) -> None:
        """One round more."""
        topo, method = self.job.topo, self.job.method

        def local(now: State) -> tuple[Any, Sent, Any]:
            rows = method.asked(now.servers, topo)
            carry, self.up, self.rows = self._place.local(method, now, self.rows if rows is None else rows)
            return carry, self.up, self.rows

        gate = self.door.gate(topo.servers, self.state.round, OTHER_SERVERS)
        self.state = advance(_Heard(method, self.across), self.state, topo, gate, local)

    def value(self, name: str) -> Array:
        sent = self.up[name]
        return np.asarray(sealed_rows(sent) if isinstance(sent, Sealed) else sent.value)


class _Heard:
    """A method whose messages across are written down."""

    def __init__(self, method: Method, across: dict[str, Array]) -> None:
        self._method, self._across = method, across

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def settle(self, servers: Any, across: Mapping[str, Array], topo: Any) -> Any:
        self._across.update(across)
        return self._method.settle(servers, dict(across), topo)


# ---- graphs ----------------------------------------------------------------------------------------------------------


def _inverted_graph(job: GraphJob, method: ExactConsensus, root: int) -> Json:
    """The first upload is the silo's own graph: on its edges the signals' mean squared differences follow."""
    listener = Listener(job, root)
    listener.listen()
    assert not isinstance(listener.data, dict)
    w, facts, truth = listener.value("vector"), listener.value("facts"), [part["zbar"] for part in listener.data]
    shares, errors = [], []
    for graph, fact, zbar in zip(w, facts, truth, strict=True):
        guess, exact = distances_of_graph(graph, method.alpha, math.exp(fact[LOG_BETA]), method.zeta)
        shares.append(float(exact.mean()))
        errors.append(_off_by(guess[exact], zbar[exact]))
    words = (
        f"from its first upload alone, {100 * np.mean(shares):.0f} % of a site's mean squared differences of two nodes "
        f"are known to {max(errors):.0e} of their size, and a lower bound on each of the others"
    )
    return _found("a site's statistics", "exact inversion of the uploaded graph", max(errors), words)


def _inverted_step(job: GraphJob, method: PaperConsensus, root: int) -> Json:
    """Two uploads in a row give the gradient between them, and so zbar."""
    listener = Listener(job, root)
    assert not isinstance(listener.data, dict)
    truth = np.array([part["zbar"] for part in listener.data])
    known, guess = np.zeros(truth.shape, dtype=np.bool_), np.zeros(truth.shape)
    before: list[Array] = []
    for _ in range(method.rounds):
        down, knobs = listener.state.down, listener.state.servers["knobs"]
        listener.listen()
        if "vector" not in listener.up:
            continue
        w = listener.value("vector")
        last = before[-1] if before else np.full_like(w, 1.0 / (method.nodes - 1))
        ahead = extrapolate(
            last, before[-2] if len(before) > 1 else np.full_like(w, 1.0 / (method.nodes - 1)), method.momentum
        )
        for k in range(len(w)):
            anchor, pull = down["consensus"].value[k], float(down["pull"].value[k])
            shape = (method.step, method.alpha, float(knobs[BETA]), method.zeta)
            found, exact = distances_of_step(ahead[k], w[k], anchor, pull, *shape)
            fresh = exact & ~known[k]
            guess[k, fresh], known[k, fresh] = found[fresh], True
        before.append(w)
    error = _off_by(guess[known], truth[known])
    words = f"{100 * known.mean():.0f} % of the sites' mean squared differences are known to {error:.0e} of their size"
    return _found("a site's statistics", "exact inversion of the gradient between two uploads", error, words)


# ---- models ----------------------------------------------------------------------------------------------------------


def _unmixed(job: Job, method: GraphFederation, root: int) -> Json:
    """Who hears a server and its neighbours follows its unit's updates through all rounds."""
    listener, sent, truth, topo = Listener(job, root), [], [], job.topo
    start = np.array(listener.state.servers["model"])
    for _ in range(min(method.rounds, _MOST_ROUNDS)):
        listener.listen()
        sent.append(np.array(listener.across["sent"]))
        value, home = listener.value("update"), topo.home[listener.rows]
        truth.append(value[home == 0].mean(0))
    heard = np.array(sent)
    if heard.ndim == 4:  # noise on every link: who hears them all averages it
        heard = heard.mean(2)
    follow = unmixed_sum if method.perturbation in ("homomorphic", "edge", "none") else followed_sum
    guess = follow(heard, np.asarray(topo.mixing), 0, start[0])[-1] / len(sent)
    error = _off_by(guess, np.mean(truth, axis=0))
    how = "read as it is" if method.perturbation == "none" else "un-mixing of the noise through the running sum"
    words = f"the mean update of unit {topo.servers[0]} over {len(sent)} rounds is found with an error of {error:.1%}"
    return _found("a unit's mean update", how, error, words)


def _parabola(job: ClusteredJob, method: ClusteredADMM, root: int) -> Json:
    """ADMM steps without noise give the squared loss of a client, and so the moments of its records."""
    listener, sent, asked, answers = Listener(job, root), [], [], []
    for _ in range(min(method.rounds, 2 * method.task.features + 6)):
        down = {name: np.array(value.value[0]) for name, value in listener.state.down.items()}
        carry = listener.state.carry["sent"]
        listener.listen()
        if 0 not in listener.rows:
            continue
        difference = listener.value("step")[int(np.flatnonzero(listener.rows == 0)[0])]
        sent.append(difference + down["model"])
        asked.append(down["model"])
        answers.append(down["answer"])
        assert np.allclose(carry[0], np.zeros_like(carry[0]) if len(sent) == 1 else sent[-2])
    models, gradients = gradients_of_steps(np.array(sent), np.array(asked), np.array(answers), method.rho)
    ridge = float(begin(method, job.topo).carry["ridge"][0])
    matrix, c = parabola(models, gradients, ridge)
    assert isinstance(listener.data, dict)
    x, y, count = (listener.data[name][0] for name in ("x", "y", "count"))
    x, y = x[: int(count)], y[: int(count)]
    error = _off_by(np.column_stack([matrix, c]), np.column_stack([x.T @ x, x.T @ y]) / len(x))
    name = job.topo.silos[0]
    words = f"from {len(sent)} steps of client {name} the moments of its {len(x)} records are known to {error:.0e}"
    return _found("a client's records", "reconstruction from ADMM steps without noise", error, words)


def _members(job: MetaJob, root: int) -> list[Json]:
    """The step a client sends leans to the gradients of its own records, those of the support set most; and the model
    it sends fits them better than others."""
    listener = Listener(job, root)
    listener.listen()
    data, models = listener.data, listener.value("model")
    assert isinstance(data, dict)
    by = {"direction of the client's step": _leaning, "loss under the client's model": _fitting}
    found = []
    for name, score in by.items():
        areas = []
        for k in range(min(len(models), 8)):
            own, other = (score(job, models[k], *_support(data, client)) for client in (k, (k + 1) % len(models)))
            areas.append(told(other, own).area)
        area = float(np.mean(areas))
        words = f"told a client's own records from another's with an area under the curve of {area:.2f} (chance 0.50)"
        found.append(_found("whose records", f"membership by the {name}", 1.0 - area, words))
    return found


def _support(data: Mapping[str, Array], client: int) -> tuple[Array, Array]:
    count = int(data[SUPPORT][client])
    return data[f"{SUPPORT}_x"][client, :count], data[f"{SUPPORT}_y"][client, :count]


def _leaning(job: MetaJob, model: Array, x: Array, y: Array) -> Array:
    start = np.asarray(job.task.start)
    alone = np.ones((len(x), 1), dtype=np.bool_)
    gradients = job.task.at(np.repeat(start[None], len(x), 0), x[:, None], y[:, None], alone).gradient(None)
    return by_gradient(model - start, np.asarray(gradients, dtype=np.float64))


def _fitting(job: MetaJob, model: Array, x: Array, y: Array) -> Array:
    return by_loss(np.array([job.task.measure(model, x[k : k + 1], y[k : k + 1])[0] for k in range(len(x))]))
