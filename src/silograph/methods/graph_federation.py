"""Graph federation (S1): regions of agents, each region with a server, and servers that mix their models over a graph.

    in an agent        w_k   = w_p - (mu/E_k) times the sum over E_k steps of a batch's gradient            (3), (6)
    at its server      psi_p = w_p + the mean of w_k - w_p over the sampled agents                          (4), (7)
    between servers    w_p   = a_pp own_p + the sum over neighbours m of a_pm sent_pm                       (5), (8)

With one server this is federated averaging; with one step in one agent per region it is diffusion (adapt, then
combine).

                   sent to neighbour m      own copy
    none           psi_p                    psi_p
    edge           psi_p + g_mp             psi_p                            a draw for every link
    sender         psi_p + g_p              psi_p + g_p
    homomorphic    psi_p + g_p              psi_p - (1 - a_pp)/a_pp g_p      (47): cancels at the centroid
    private        the same as own          w_p + the mean of clipped updates + noise for that clip

A server adds up its own agents' updates (`reach` region), or all servers have one sum over everybody's (all): then

    psi_p = w + the sum of all clipped updates, with noise for one clip, / how many there were

is the same at every server, (8) does not change it, and the noise is what a trusted curator of all agents would need.
With noise in the updates, the result is the mean of the models of the last half of the rounds. With a share `personal`
of the budget each region then takes one more sum of its own agents' updates at that common model w:

    w_p = w + max(0, 1 - noise / spread) v_p,      v_p = the region's mean update less the mean of all regions'

`spread` being the mean squared length of v_p, and `noise` what of it is noise (empirical Bayes).

Only `private` is a guarantee. An observer of a server and its neighbours can remove all homomorphic noise but one
round's (`privacy.unmixing`): it is obfuscation, like the two above it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from silograph.core.errors import InputError
from silograph.core.schema import Amount, Count, Portion, Positive, Span, check
from silograph.core.types import Array, BoolArray, Carry, Json
from silograph.kernels.draws import batches, draw_key, integers, silo_ids
from silograph.kernels.mixing import centroid, combine, combine_links, disagreement
from silograph.methods.base import ALL, EACH, Limits, Outcome, Outlet, Plain, Private, Rows, ServerOutlet, Start, Up
from silograph.methods.sampling import check_growth, check_sample, sampled, within_reach
from silograph.privacy.bound import CLIPPED_AGENT, Bounded
from silograph.privacy.flooding import Joined
from silograph.privacy.released import Message, Released, Sent
from silograph.tasks.linear import Linear
from silograph.topology import Topology

Perturbation = Literal["none", "edge", "sender", "homomorphic", "private"]
Law = Literal["laplace", "gaussian"]
Reach = Literal["region", "all"]

_WHY = {
    "none": "no protection was asked for",
    "edge": "noise on every link: obfuscation, not differential privacy",
    "sender": "noise on what is sent: obfuscation, not differential privacy",
    "homomorphic": "homomorphic noise: obfuscation against who hears one link, taken off by who hears the neighbours",
}


@dataclass(frozen=True)
class GraphFederation(Plain):
    """`step` mu, `sample` L agents of each region a round (all if None), local steps and batch sizes from ranges.

    The public `seed` decides which agents and records are drawn: no privacy is claimed from sampling. `variance` is
    sigma_g^2 of the perturbations that are not `private`; `clip` bounds an agent's update. `personal` is the share of
    the budget that turns the common model into a region's own, with `reach` all: the run has one more round.
    """

    task: Linear
    step: Positive
    rounds: Count
    sample: Count | None = None
    epochs: Span = (1, 1)
    batch: Span | None = None
    perturbation: Perturbation = "none"
    variance: Amount = 0.0
    law: Law = "laplace"
    clip: Positive | None = None
    seed: int = 0
    reach: Reach = "region"
    personal: Portion = 0.0

    def __post_init__(self) -> None:
        check(self, "graph federation")
        if self.perturbation == "private" and self.clip is None:
            raise InputError("graph federation, clip", "a number with the private perturbation", "found none")
        if self.reach == "all" and self.perturbation not in ("none", "private"):
            expected = "none or private where the sum is over all regions"
            raise InputError("graph federation, perturbation", expected, f"found {self.perturbation}")
        if self.personal and not (self.perturbation == "private" and self.personal < 1.0):
            expected = "a share below 1 of a budget"
            raise InputError("graph federation, personal", expected, f"found {self.personal:g} without one")

    def start(self, topo: Topology) -> Start:
        check_sample(self.sample, topo)
        ids = silo_ids(topo.silos)
        carry: Carry = {"id": ids, "epochs": self._drawn(ids, "epochs", self.epochs)}
        if self.batch is not None:
            carry["batch"] = self._drawn(ids, "batch sizes", self.batch)
        model = np.zeros((len(topo.servers), self.task.features))
        servers: Carry = {
            "model": model,
            "own": model,
            "ids": ids,
            "round": np.int64(0),
            "first": np.float64(0.0),
            "movement": np.float64(0.0),
            "counts": np.zeros(len(topo.servers)),
        }
        if self.perturbation == "private":
            servers["tail"] = model
        return Start(carry, servers, self._answer(servers, topo))

    def taken_over(self, servers: Carry, topo: Topology) -> Start:
        """Take over models and the mean of the last half; present agents have the numbers that were drawn for their
        names."""
        begun = self.start(topo)
        kept = ("model", "own", "round", "first", "tail")
        carry: Carry = {name: servers[name] if name in kept else value for name, value in begun.servers.items()}
        return replace(begun, servers=carry, down=self._answer(carry, topo))

    def _drawn(self, ids: np.typing.NDArray[np.uint64], release_point: str, bounds: tuple[int, int]) -> Array:
        """A number between the bounds for each agent, the same in all rounds."""
        low, high = bounds
        return np.asarray(low + integers(draw_key(self.seed, 0, release_point), ids, 1, high - low + 1)[:, 0])

    def _answer(self, servers: Carry, topo: Topology) -> dict[str, Array]:
        return {
            "model": servers["model"][topo.home],
            "round": np.full(len(topo.silos), float(servers["round"])),
        }

    def asked(self, servers: Carry, topo: Topology) -> Rows | None:
        if self._is_personal(servers):
            return None
        return sampled(self.sample, self.seed, int(servers["round"]), servers["ids"], topo)

    def _is_personal(self, servers: Carry) -> bool:
        """Whether this is the last round, of the regions' own sums."""
        return self.personal > 0.0 and bool(servers["round"] == self.rounds)

    def limits(self) -> dict[str, Limits]:
        stride = None if self.clip is None else self.clip + math.sqrt(self.variance)
        return {"model": within_reach(stride), "round": Limits(0.0, float(self.rounds), whole=True)}

    # ---- in the agent ----

    def local(self, carry: Carry, down: Message, data: Private, gate: Outlet) -> tuple[Carry, Sent]:
        model, count = down["model"].value, data["count"].astype(np.int64)
        if self.batch is None:
            sizes, most = count, self.task.most
            batch = np.ascontiguousarray(np.broadcast_to(np.arange(most), (len(count), self.epochs[1], most)))
        else:
            sizes = np.minimum(carry["batch"], count)
            key = draw_key(self.seed, int(down["round"].value[0]), "batches")
            batch = batches(key, carry["id"], self.epochs[1], self.batch[1], count)
        moved = self.task.descend(model, data, batch, carry["epochs"], sizes, self.step)  # (6)
        update, last = moved - model, bool(down["round"].value[0] == self.rounds)
        if self.personal and last:  # each other round has 1/rounds of the rest of the budget
            share = self.rounds * self.personal / (1.0 - self.personal)
            return {}, {"update": gate.contribute(update, "update", self.clip, share)}
        return {}, {"update": gate.contribute(update, "update", self.clip, joined=self.reach == "all")}

    # ---- at the servers ----

    def gather(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        if self._is_personal(servers):
            return self._gather_own(servers, up, topo, gate)
        joined = () if self.reach == "region" else (_everybody(topo),)
        total = gate.total(up.sealed["update"], up.rows, topo.home, topo.silos, *joined)
        mean = total.sums / np.maximum(total.counts, 1.0)[:, None]
        if self.perturbation == "private" and not total.released:
            heard = np.flatnonzero(total.counts)
            mean[heard] = gate.rows(heard).release(self._bounded(mean[heard], total.counts[heard]), "mean").value
        psi = servers["model"] + mean  # (7)
        sent, own = self._sent(psi, topo, gate)
        counts = total.counts if self.reach == "region" else _by_region(total.summed, up.rows, topo)
        return {**servers, "own": own, "counts": counts}, {EACH if self.perturbation == "edge" else "sent": sent}

    def _gather_own(self, servers: Carry, up: Up, topo: Topology, gate: ServerOutlet) -> tuple[Carry, Message]:
        """Gather each region's mean update, with the noise in it; all regions need all of them."""
        total = gate.total(up.sealed["update"], up.rows, topo.home, topo.silos)
        assert total.noise is not None, "agents put the noise in"
        heard, counts = total.counts > 0.0, np.maximum(total.counts, 1.0)[:, None]
        told = np.column_stack([total.sums / counts, total.noise / counts[:, 0], heard])
        return {**servers, "counts": total.counts}, {ALL: gate.relay(told)}

    def _own_models(self, servers: Carry, told: Array, topo: Topology) -> Array:
        """Add to the common model each region's deviation from the regions' mean update, less its part that is
        noise."""
        mean, off, heard = told[:, :-2], told[:, -2], told[:, -1] > 0.0
        v = np.where(heard[:, None], mean - mean[heard].mean(0), 0.0)
        degrees = max(int(heard.sum()) - 1, 1)
        spread = float((v**2).sum()) / degrees
        noise = float((off[heard] ** 2).mean()) * v.shape[1]
        shrunk = max(0.0, 1.0 - noise / spread) if spread > 0.0 else 0.0
        return np.asarray(servers["model"] + shrunk * v[topo.place])

    def _bounded(self, mean: Array, counts: Array) -> Bounded:
        assert self.clip is not None
        why = (
            f"each agent's update is clipped to {self.clip:g}: another agent in its place moves the mean by 2 clip / n"
        )
        return Bounded(mean, 2.0 * self.clip / counts, CLIPPED_AGENT, why)

    def _sent(self, psi: Array, topo: Topology, gate: ServerOutlet) -> tuple[Released, Array]:
        """The values for the neighbours, and each server's own copy."""
        if self.perturbation == "private":
            return gate.relay(psi), psi  # nothing else is known of the updates
        servers, features = psi.shape
        if self.perturbation == "none":
            sent = own = psi
        elif self.perturbation == "edge":
            everybody = len(topo.graph.servers)
            g_mp = self._noise(gate, everybody * features).reshape(servers, everybody, features)
            sent, own = psi[:, None] + g_mp, psi
        else:
            g = self._noise(gate, features)
            sent = psi + g
            own = sent if self.perturbation == "sender" else psi - (topo.others / topo.weight)[:, None] * g  # (47)
        return gate.reveal(sent, "sent", _WHY[self.perturbation]), own

    def _noise(self, gate: Outlet, count: int) -> Array:
        u, deviation = gate.uniforms(count, "noise"), math.sqrt(self.variance)
        if self.law == "gaussian":
            from scipy.special import ndtri  # late: an agent draws none of this

            return np.asarray(deviation * ndtri(u))
        # Lap(0, sigma_g / sqrt 2) has variance sigma_g^2
        return np.asarray(deviation / math.sqrt(2.0) * np.sign(u - 0.5) * -np.log1p(-np.abs(2.0 * u - 1.0)))

    def settle(self, servers: Carry, across: dict[str, Array], topo: Topology) -> tuple[Carry, dict[str, Array]]:
        if ALL in across:
            model = self._own_models(servers, across[ALL], topo)
        elif self.reach == "all":
            model = servers["own"]  # the same everywhere
        else:
            links = topo.links
            heard = combine_links(links, across[EACH]) if EACH in across else combine(links, across["sent"])
            model = topo.weight[:, None] * servers["own"] + heard  # (8)
        first = servers["first"] or np.float64(np.abs(model).max())
        why = f"the step size {self.step:g} is too large for these records"
        todo = f"Try a step of {self.step / 10.0:g}, or scale the features down."
        moved = model - servers["model"] if self.clip is None else None
        check_growth(model, first, f"graph federation, round {int(servers['round'])}", topo, why, todo, moved)
        if self.perturbation == "private" and servers["round"] < self.rounds:
            model, servers = self._tail_averaged(model, servers)
        movement = np.sqrt(((model - servers["model"]) ** 2).sum(-1).mean())
        servers = {**servers, "model": model, "round": servers["round"] + 1, "movement": movement, "first": first}
        return servers, self._answer(servers, topo)

    def _tail_averaged(self, model: Array, servers: Carry) -> tuple[Array, Carry]:
        """After the last round the mean of the last half's models: noise of single rounds averages out."""
        half, round = max(self.rounds // 2, 1), int(servers["round"])
        if round < self.rounds - half:
            return model, servers
        tail = servers["tail"] + model
        return (tail / half if round == self.rounds - 1 else model), {**servers, "tail": tail}

    @property
    def most_rounds(self) -> int:
        """One more if regions take their own sums at the end."""
        return self.rounds + (self.personal > 0.0)

    def done(self, servers: Carry) -> bool:
        return bool(servers["round"] >= self.most_rounds)

    def trace(self, servers: Carry) -> Json | None:
        return {
            "movement": float(servers["movement"]),
            "disagreement": _disagreement(servers["model"]),
            "answered": int(servers["counts"].sum()),
            "skipped": int((servers["counts"] == 0.0).sum()),
        }

    def outcome(self, servers: Carry, delivered: dict[str, Array], topo: Topology) -> Outcome:
        model = servers["model"]
        facts = {"rounds": int(servers["round"]), "disagreement": _disagreement(model)}
        return Outcome({"model": model, "centroid": model[0] if _alike(model) else centroid(model)}, facts)


def _alike(model: Array) -> bool:
    """Whether all servers have the same model, so that the mean needs no rounding."""
    return bool((model == model[0]).all())


def _disagreement(model: Array) -> float:
    return 0.0 if _alike(model) else float(disagreement(model))


def _everybody(topo: Topology) -> Joined:
    """One sum over the agents of all servers."""
    count = len(topo.servers)
    return Joined.over(topo.mixing, np.zeros(count), np.arange(count), "all regions")


def _by_region(summed: BoolArray, rows: Rows, topo: Topology) -> Array:
    """Count each region's agents in the sum."""
    return np.bincount(topo.home[rows[summed]], minlength=len(topo.servers)).astype(np.float64)
