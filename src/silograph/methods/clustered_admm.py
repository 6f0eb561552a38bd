"""Clustered models (S2): every client is in a cluster and has a server, every server keeps a model for each cluster.

    in a client         w_k     = argmin f_k(w) - <phi_k, w - what_sq> + (rho/2) |w - what_sq|^2         (4)
                        wt_k    = w_k, and noise if records are protected                                (12)
    at its server       w_sq    = the mean over the cell of wt_k - phi_k/rho                             (8), (13)
    between servers     wbar_sq = the mean over the neighbourhood of w_mq                                (9)
    between clusters    what_sq = (1 - tau) wbar_sq + tau times the mean of wbar_sr, r != q or all r     (10)
    in a client         phi_k   = phi_k + rho (what_sq - wt_k)                                           (5)

f_k is the mean loss and lam/|C_s| times |w|^2/2, |C_s| counting all clients of the server. A cell is the clients of one
server and one cluster. A client remembers s_k = wt_k - phi_k/rho, which (8) needs, and (5) then reads phi_k = rho
(answer - s_k); the answer is what_sq at the end of the round it took part in. A server takes in only the differences
s_k - what_sq. In them the dual cancels: they are -1/rho times the gradient of f_k at w_k. A cell without clients in a
round keeps its model.

               leaves a client                         guarantee
    none       the difference, for its own server      none; with masks and a clip only the cell's sum is seen
    records    wt_k, with noise for (43)               one record, against everybody
    clients    the difference, clipped                 one client: noise in the cell's sum, from its clients or server

With `reach` all there is one sum for a cluster over the clients of all servers, so that every server has the same model
of it and (9) leaves it as it is.

The single step (6), (7), where the paper starts, is consensus ADMM between servers, derived from (3):

    w_sq  = (mean + sum over neighbours of (w_sq + w_pq)/2 + xi_sq + tau mean of wbar_sr) / (|N_s| + tau)     (6)
    xi_sq = xi_sq + sum over neighbours of (w_pq - w_sq)/2                                                    (7)

with last round's models on the right of (6). Clients receive it unchanged. Unlike (9) it is exact on every graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.schema import Amount, Count, Portion, Positive, Share, check
from silograph.core.types import Array, Carry, Json
from silograph.kernels.draws import silo_ids
from silograph.kernels.mixing import combine, disagreement
from silograph.methods.base import ALL, Limits, Outcome, Outlet, Private, Rows, ServerOutlet, Start, Up
from silograph.methods.borrowing import borrowed, told
from silograph.methods.consensus_graph import OPEN
from silograph.methods.sampling import check_growth, check_sample, sampled, within_reach
from silograph.privacy.bound import CLIPPED_AGENT, Bounded, row_lengths
from silograph.privacy.flooding import Joined
from silograph.privacy.released import Message, Sent
from silograph.tasks.clustered import Client, Proximal
from silograph.tasks.linear import PROTECTED_UNIT
from silograph.topology import Topology

Form = Literal["others", "all"]
Weights = Literal["uniform", "mixing", "alone"]
Steps = Literal["several", "single"]
Protect = Literal["none", "records", "clients"]


_STEEPEST = 1e8  # beyond, a client's minimum may not be found, and its sensitivity holds only there


@dataclass(frozen=True)
class ClusteredADMM:
    """The method. `clusters` gives the cluster of every client, in the whole graph's order; it is public.

    `weights` of (9): `uniform` over the neighbourhood as in the paper, the topology's `mixing`, or every server
    `alone`. tau in round n = 0, 1, ... is `tau` times `tau_decay`^n; or, after a third of the rounds without any, the
    exchange is `learned` from the servers' models (`borrowing`) and stays. `sample` clients of each server a round (all
    if None), by `seed`, which is public: nothing is claimed from sampling. `clip` bounds a client's difference.
    """

    task: Client
    clusters: tuple[int, ...]
    rho: Positive
    rounds: Count
    lam: Amount = 0.0
    tau: Portion | Literal["learned"] = 0.0
    tau_decay: Share = 1.0
    form: Form = "others"
    weights: Weights = "uniform"
    steps: Steps = "several"
    sample: Count | None = None
    protect: Protect = "none"
    clip: Positive | None = None
    seed: int = 0
    reach: Literal["region", "all"] = "region"

    def __post_init__(self) -> None:
        check(self, "clustered models")
        bounded = self.protect != "records" or self.task.largest is not None
        task = self.task
        exact = self.protect == "records" and isinstance(task, Proximal) and task.radius is not None
        steep = exact and isinstance(task, Proximal) and task.curvature() > _STEEPEST * self.rho
        for name, good, expected in (
            ("tau", self.tau != "learned" or self.steps == "several", "a number with the single step"),
            ("weights", self.weights != "mixing" or self.steps != "single", "uniform or alone with the single step"),
            ("clip", self.clip is not None or self.protect != "clients", "a number where clients are protected"),
            ("clip", self.clip is None or self.protect != "records", "none: the task bounds a record's gradient"),
            ("steps", self.reach == "region" or self.steps == "several", "several with sums over all servers"),
            ("protect", self.reach == "region" or self.protect != "records", "clients or none, whose steps are summed"),
            ("rho", not steep, f"at least a {_STEEPEST:g}th of the loss's curvature, to protect records"),
            ("task", bounded, "a bounded gradient: huber or logistic with a radius, or a linearised step's clip"),
        ):
            if not good:
                raise InputError(f"clustered models, {name}", expected, f"found {getattr(self, name)}")
        self._check_clusters()

    def _check_clusters(self) -> None:
        where, there = "clustered models, clusters", set(self.clusters)
        if not there or there != set(range(len(there))):
            raise InputError(where, "the numbers 0, 1, ... without gaps", f"found {sorted(there)[:9]}")

    @cached_property
    def _count(self) -> int:
        return max(self.clusters) + 1

    def start(self, topo: Topology) -> Start:
        silos, servers = len(topo.silos), len(topo.servers)
        if len(self.clusters) != len(topo.graph.silos):
            expected = f"a cluster for each of the {len(topo.graph.silos)} clients"
            raise InputError("clustered models, clusters", expected, f"found {len(self.clusters)}")
        check_sample(self.sample, topo)
        zeros, model = np.zeros((silos, self.task.features)), np.zeros((servers, self._count, self.task.features))
        own: Carry = {"model": zeros, "sent": zeros}
        carry: Carry = {"ridge": self.lam / topo.sizes[topo.home]}
        at_servers: Carry = {
            "model": model,
            "answer": zeros,
            "cell": topo.home * self._count + np.array(self.clusters, np.intp)[topo.graph.index(topo.silos)],
            "came": np.zeros(silos, dtype=np.bool_),
            "counts": np.zeros(servers * self._count),
            "ids": silo_ids(topo.silos),
            "round": np.int64(0),
            "first": np.float64(0.0),
            "movement": np.float64(0.0),
        }
        if self.steps == "single":
            at_servers |= {"xi": model, "towards": model}
        if self.tau == "learned":
            nothing = np.zeros((len(topo.graph.servers), self._count, self.task.features))
            cells = np.zeros(nothing.shape[:2], dtype=np.bool_)
            at_servers |= {"early": nothing, "steps": nothing, "heard": cells, "exchange": np.eye(self._count)}
        if self.protect == "records":
            return Start(carry, at_servers, self.answer(at_servers), own)
        return Start(own | carry, at_servers, self.answer(at_servers))

    def answer(self, servers: Carry) -> dict[str, Array]:
        return {"model": self._by_cell(servers["model"])[servers["cell"]], "answer": servers["answer"]}

    def _by_cell(self, model: Array) -> Array:
        return model.reshape(-1, self.task.features)

    def asked(self, servers: Carry, topo: Topology) -> Rows | None:
        return sampled(self.sample, self.seed, int(servers["round"]), servers["ids"], topo)

    def limits(self) -> dict[str, Limits]:
        """A client moves from its centre by its records' gradient, C / rho at most, or by the clip."""
        largest = self.task.largest if self.protect == "records" else None
        return dict.fromkeys(("model", "answer"), within_reach(self.clip if largest is None else largest / self.rho))

    # ---- in the client ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        what, answer, sent = down["model"].value, down["answer"], carry["sent"]
        phi = self.rho * (answer.value - (sent.value if self.protect == "records" else sent))  # (5)
        w = self.task.step(what, phi, self.rho, carry["ridge"], data)  # (4)
        if self.protect == "records":
            noisy = gate.release(
                self._record_bounded(w, data["count"], what, answer.value, sent.value), "model"
            )  # (12)
            sent = noisy.map(_without_dual, answer, sent)
            return {"model": noisy, "sent": sent}, {"sent": sent}
        sent = _without_dual(w, answer.value, sent)
        return {"model": w, "sent": sent}, {
            "step": gate.contribute(sent - what, "step", self.clip, joined=self.reach == "all")
        }

    def _record_bounded(self, w: Array, count: Array, what: Array, answer: Array, sent: Array) -> Bounded:
        largest = self.task.largest
        assert largest is not None
        why = f"Lemma 1 of S2: no record's gradient is longer than C = {largest:g}: 2 C / (rho D), D being public"
        bound = 2.0 * largest / (self.rho * count)  # (43)
        # For the solver's remaining gradient, and rounding of models far longer than the bound. Half of a millionth of
        # the bound allows for rounding of a dual, too; a server may send a longer one.
        rounding = 1e-13 * math.sqrt(what.shape[1])
        dual = rounding * (row_lengths(answer) + row_lengths(sent))[:, 0]
        slack = rounding * row_lengths(what)[:, 0] + np.maximum(dual - 0.5e-6 * bound, 0.0)
        return Bounded(w, bound * (1.0 + 1e-6) + slack, PROTECTED_UNIT, why)

    def deliver(self, carry: Carry, data: Private, gate: Outlet) -> Message:
        """Hand over its model; the released one if records are protected; nothing if only sums may be seen."""
        if self.protect == "records":
            return {"model": carry["model"]}
        if self.clip is not None:
            return {}
        return {"model": gate.reveal(carry["model"], "model", OPEN)}

    # ---- at the servers ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        what = servers["model"]
        mean, counts = self._means(servers, up, topo, gate)
        w = what + mean.reshape(what.shape)  # (8), (13)
        if self.steps == "single":
            w = (w + servers["towards"]) / (self._sizes(topo) + self._pull(int(servers["round"])))  # (6)
        came = np.zeros(len(topo.silos), dtype=np.bool_)
        came[up.rows] = True
        sent = gate.relay(w) if self.protect != "none" else gate.reveal(w, "sent", OPEN)
        message = {"sent": sent}
        if self.tau == "learned" and int(servers["round"]) <= self._learning:
            message[ALL] = gate.relay(told(w, what, counts))
        return {**servers, "came": came, "counts": counts}, message

    def _means(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Array, Array]:
        """Each cell's mean difference, 0 without clients, and its number of clients."""
        cell, what = servers["cell"], self._by_cell(servers["model"])
        if self.protect == "records":
            place = cell[up.rows]
            sums, counts = np.zeros_like(what), np.bincount(place, minlength=len(what)).astype(np.float64)
            np.add.at(sums, place, up.values["sent"] - what[place])
            return sums / np.maximum(counts, 1.0)[:, None], counts
        border = gate.over([f"{server}/cluster-{q}" for server in topo.servers for q in range(self._count)])
        joined = () if self.reach == "region" else (self._by_cluster(topo),)
        total = border.total(up.sealed["step"], up.rows, cell, topo.silos, *joined)
        mean = total.sums / np.maximum(total.counts, 1.0)[:, None]
        if self.protect == "clients" and not total.released:
            heard = np.flatnonzero(total.counts)
            bounded = self._client_bounded(mean[heard], total.counts[heard])
            mean[heard] = border.rows(heard).release(bounded, "mean").value
        return mean, total.counts

    def _by_cluster(self, topo: Topology) -> Joined:
        """One sum for every cluster, over the cells of all servers."""
        server, cluster = np.divmod(np.arange(len(topo.servers) * self._count), self._count)
        return Joined.over(topo.mixing, cluster, server, *(f"cluster-{q}" for q in range(self._count)))

    def _client_bounded(self, mean: Array, counts: Array) -> Bounded:
        assert self.clip is not None
        why = f"each client's difference is clipped to {self.clip:g}: another in its place moves the mean by 2 clip / n"
        return Bounded(mean, 2.0 * self.clip / counts, CLIPPED_AGENT, why)

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        w, last, round = across["sent"], servers["model"], int(servers["round"])
        if self.steps == "single":
            what = w[topo.own]
            servers = {**servers, **self._consensus(w, servers["xi"], round, topo)}
        else:
            if ALL in across:
                servers = {**servers, **borrowed(servers, across[ALL], round, self._learning)}
            what = self._exchanged(self._averaged(w, topo), servers)
        first = servers["first"] or np.float64(np.abs(what).max())
        why, todo = f"rho = {self.rho:g} is too small for these records", f"Try a rho of {10.0 * self.rho:g}."
        check_growth(what, first, f"clustered models, round {round}", topo, why, todo)
        servers = {
            **servers,
            "model": what,
            "answer": np.where(servers["came"][:, None], self._by_cell(what)[servers["cell"]], servers["answer"]),
            "round": servers["round"] + 1,
            "first": first,
            "movement": np.sqrt(((what - last) ** 2).sum(-1).mean()),
        }
        return servers, self.answer(servers)

    @property
    def _learning(self) -> int:
        """The round in which the exchange is learned, if any."""
        return self.rounds // 3

    def _tau(self, round: int) -> float:
        assert self.tau != "learned"
        return self.tau * self.tau_decay**round

    def _averaged(self, w: Array, topo: Topology) -> Array:
        if self.weights == "alone" or self.reach == "all":
            return np.asarray(w[topo.own])
        mixing = topo.mixing if self.weights == "mixing" else topo.neighbourhood
        return combine(mixing, w.reshape(len(w), -1)).reshape(-1, *w.shape[1:])  # (9)

    def _exchanged(self, wbar: Array, servers: Carry) -> Array:
        if self.tau == "learned":
            return np.asarray(np.einsum("qr,srm->sqm", servers["exchange"], wbar))
        tau = self._tau(int(servers["round"]))
        return wbar if self._count == 1 else (1.0 - tau) * wbar + tau * self._of_clusters(wbar)  # (10)

    def _of_clusters(self, wbar: Array) -> Array:
        """What each cluster takes from others: the mean of the others, or of all."""
        total = wbar.sum(1, keepdims=True)
        return np.asarray(total / self._count if self.form == "all" else (total - wbar) / (self._count - 1))

    # ---- the single step ----

    def _consensus(self, w: Array, xi: Array, round: int, topo: Topology) -> Carry:
        """The dual between servers, and the centre of the next round's models."""
        sizes, wbar, w = self._sizes(topo), self._averaged(w, topo), w[topo.own]
        theirs, own = sizes * wbar - w, (sizes - 1.0) * w  # sums over neighbours
        xi = xi + 0.5 * (theirs - own)  # (7)
        towards = 0.5 * (theirs + own) + xi
        if pull := self._pull(round + 1):
            towards = towards + pull * self._of_clusters(wbar)
        return {"xi": xi, "towards": towards}

    def _pull(self, round: int) -> float:
        return self._tau(round) if self._count > 1 else 0.0

    def _sizes(self, topo: Topology) -> Array:
        """|N_s|, including s itself."""
        alone = self.weights == "alone"
        return np.ones((len(topo.servers), 1, 1)) if alone else topo.neighbours[:, None, None]

    # ---- what comes of it ----

    def done(self, servers: Carry) -> bool:
        return bool(servers["round"] >= self.rounds)

    def _disagreement(self, servers: Carry) -> float:
        model = servers["model"]
        return 0.0 if (model == model[:1]).all() else float(disagreement(model.swapaxes(0, 1)).mean())

    def trace(self, servers: Carry) -> Json | None:
        return {
            "movement": float(servers["movement"]),
            "disagreement": self._disagreement(servers),
            "answered": int(servers["came"].sum()),
            "skipped": int((servers["counts"] == 0.0).sum()),
        }

    def instead(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        """Give a client that is gone when models are handed over the model of its cell."""
        return {"model": self.answer(servers)["model"]}

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        """Return a client's own model if it was handed over, else its cell's."""
        model = servers["model"]
        cell = self.answer(servers)["model"]
        arrays = {"model": delivered.get("model", cell), "cell_model": cell, "cluster_model": model}
        if self.tau == "learned":
            arrays["exchange"] = servers["exchange"]
        facts = {"rounds": int(servers["round"]), "disagreement": self._disagreement(servers), "clusters": self._count}
        return Outcome(arrays, facts)


def _without_dual(wt: Array, answer: Array, sent: Array) -> Array:
    """wt_k - phi_k / rho."""
    return np.asarray(wt - answer + sent)
