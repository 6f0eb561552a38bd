"""An eavesdropper takes homomorphic noise off, and does not get through the private mode.

    python examples/unmix.py

Ten regions of a hundred agents learn a linear model for 500 rounds; in region 0 the answers follow a rule of their own,
which is what its updates would tell. Somebody hears region 0 and its neighbours, knows the graph, and wants the
region's mean update. Homomorphic noise of variance 0.1 is on every value that is heard.
"""

import math

import numpy as np

from silograph.data.federation import regression
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.observers import OTHER_SERVERS
from silograph.privacy.unmixing import followed_sum, unmixed_sum
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

ROUNDS, AGENTS, SAMPLE, REGION = 500, 100, 11, 0
EPSILON, DELTA, CLIP = 2.0, 1e-6, 0.5
OWN_RULE = np.array([3.0, -2.0])


class Tapped(GraphFederation):
    """The same method, with what crosses between servers and the true mean updates written down."""

    def settle(self, servers, across, topo):
        after, down = super().settle(servers, across, topo)
        self.heard.append(across["sent"])
        return after, down


def run(perturbation, mechanism=None, budget=None):
    records, _ = regression(seed=1, agents=AGENTS)
    records = [(x, y + x @ OWN_RULE) if k < AGENTS else (x, y) for k, (x, y) in enumerate(records)]
    task = Linear(features=2, most=max(len(y) for _, y in records), rho=0.1)
    topo = regions(server_graph("random", 10, seed=3), AGENTS)
    method = Tapped(
        task, 0.7, ROUNDS, SAMPLE, (1, 10), (5, 10), perturbation, variance=0.1, clip=CLIP if mechanism else None
    )
    object.__setattr__(method, "heard", [])
    truth = []

    class Watched(Door):
        """Sees the exact means, which no eavesdropper does, to measure the attack by."""

        def gate(self, silos, round, observer="server"):
            gate = super().gate(silos, round, observer)
            if observer == OTHER_SERVERS:
                total = gate.total

                def watched(*arguments):
                    made = total(*arguments)
                    truth.append(made.sums[REGION] / made.counts[REGION])
                    return made

                gate.total = watched
            return gate

    door = Watched(7, Ledger(), mechanism, budget)
    engine = ENGINES["vector"](task.prepare_all(records), topo, door)
    for _ in rounds(method, topo, engine, door):
        pass
    return np.array(method.heard), topo.mixing, np.mean(truth, axis=0), door, topo


def off_by(estimate, truth):
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


def main():
    sent, a, truth, *_ = run("homomorphic")
    guess = unmixed_sum(sent, a, REGION, np.zeros(2))[-1] / ROUNDS
    print(f"homomorphic, variance 0.1: the region's mean update is {truth}, the eavesdropper finds {guess}")
    print(f"  off by {100 * off_by(guess, truth):.2f} % after {ROUNDS} rounds: obfuscation, not privacy")

    trusted = frozenset({"own server"})
    noise = Gaussian(gaussian_multiplier(EPSILON, DELTA, ROUNDS))
    sent, a, truth, door, topo = run("private", noise, Budget(EPSILON, DELTA, trusted))
    guess = followed_sum(sent, a, REGION, np.zeros(2))[-1] / ROUNDS
    deviation = noise.multiplier * 2.0 * CLIP / SAMPLE / math.sqrt(ROUNDS)
    spent = door.spent(topo.servers[REGION], DELTA, "neighbour")
    print(f"private, epsilon {spent.epsilon:.3g} at delta {DELTA:g} for every agent: the same eavesdropper")
    print(f"  off by {100 * off_by(guess, truth):.0f} %: noise of deviation {deviation:.3f} stays on the mean update")


if __name__ == "__main__":
    main()
