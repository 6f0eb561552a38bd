"""Every attack of silograph.privacy.attacks on a small example, with its picture.

    python examples/attacks.py docs

prints what each finds and writes attack-*.svg into the folder: the pictures of docs/attacks.md and docs/audit.md.
"""

import re
import sys
import time
from pathlib import Path

import numpy as np

from silograph.data.federation import regression
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import squared_distances
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from silograph.privacy.attacks import bounds, channels, duals, graphs, members
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.observers import OTHER_SERVERS
from silograph.privacy.unmixing import followed_sum, unmixed_sum
from silograph.report.charts import lines_svg
from silograph.report.figures import FONT, LIGHT
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.clustered import Proximal
from silograph.tasks.linear import Linear
from silograph.tasks.smooth_graph import SmoothGraph, distances_of, from_coordinates
from silograph.topology import regions, server_graph

NODES, SIGNALS, ALPHA, BETA = 10, 3000, 1.0, 0.01


def off_by(guess, truth):
    return float(np.linalg.norm(guess - truth) / np.linalg.norm(truth))


def signals():
    graph = paper_graphs(1, silos=1, nodes=NODES, keep=0.8).local[0]
    return smooth_signals(np.random.default_rng(1), graph, SIGNALS)


def inversion():
    """A site's mean squared differences, from its graph as it was uploaded, and from what leaves with privacy."""
    x = signals()
    x = (x - x.mean(1, keepdims=True)) / np.linalg.norm(x - x.mean(1, keepdims=True), axis=1, keepdims=True)
    truth = squared_distances(x)
    w = solve(truth[None], ALPHA, BETA, 0.0).w[0]
    guess, exact = graphs.distances_of_graph(w, ALPHA, BETA)
    print(f"inversion: {exact.mean():.0%} of the numbers, off by {off_by(guess[exact], truth[exact]):.1e}")
    order = np.argsort(truth)
    lines = [("truth", list(enumerate(truth[order])))]
    lines.append(("the uploaded graph", [(k, guess[e]) for k, e in enumerate(order) if exact[e]]))
    task = SmoothGraph(NODES, "moment")
    for epsilon in (2.0, 0.2):
        mechanism = Gaussian(gaussian_multiplier(epsilon, 1e-6, 1))
        data = {name: value[None] for name, value in task.prepare(x).items()}
        released = Door(3, Ledger(), mechanism).gate(["site"], 0).release(task.bounded(data), "moment").value
        seen = distances_of(from_coordinates(released), NODES)[0]
        print(f"  with epsilon {epsilon:g}: off by {off_by(seen, truth):.0%}")
        lines.append((f"with epsilon {epsilon:g}", list(enumerate(seen[order]))))
    return lines_svg(
        lines, "What a server knows of a site", x_name="pair of nodes, sorted", y_name="mean squared difference"
    )


class Heard(GraphFederation):
    """Writes down what crosses between servers."""

    def settle(self, servers, across, topo):
        self.__dict__.setdefault("heard", []).append(across["sent"])
        return super().settle(servers, across, topo)


def unmixing():
    """A region's mean update, from what an eavesdropper hears of it and its neighbours."""
    count, agents = 300, 30
    records, _ = regression(seed=1, agents=agents)
    records = [(x, y + x @ np.array([3.0, -2.0])) if k < agents else (x, y) for k, (x, y) in enumerate(records)]
    task = Linear(features=2, most=max(len(y) for _, y in records), rho=0.1)
    topo, lines = regions(server_graph("random", 10, seed=3), agents), []
    for mode, mechanism in (("homomorphic", None), ("private", Gaussian(gaussian_multiplier(2.0, 1e-6, count)))):
        method = Heard(task, 0.7, count, perturbation=mode, variance=0.1, clip=0.5 if mechanism else None)
        truth = []

        class Watched(Door):
            def gate(self, silos, round, observer="server", truth=truth):
                gate = super().gate(silos, round, observer)
                if observer == OTHER_SERVERS:
                    total = gate.total

                    def watched(*arguments):
                        made = total(*arguments)
                        truth.append(made.sums[0] / made.counts[0])
                        return made

                    gate.total = watched
                return gate

        door = Watched(7, Ledger(), mechanism)
        for _ in rounds(method, topo, ENGINES["vector"](task.prepare_all(records), topo, door), door):
            pass
        follow = unmixed_sum if mode == "homomorphic" else followed_sum
        guess, sums = follow(np.array(method.heard), topo.mixing, 0, np.zeros(2)), np.cumsum(truth, axis=0)
        errors = [min(off_by(guess[t], sums[t]), 3.0) for t in range(count)]
        print(f"un-mixing, {mode}: off by {errors[-1]:.1%} after {count} rounds")
        lines.append((mode if mode == "homomorphic" else "private, epsilon 2", list(enumerate(errors, 1))))
    return lines_svg(lines, "Error of a region's mean update", x_name="rounds", y_name="relative error", log_x=True)


def steps_of(client, data, noise, count, rng, rho=1.5):
    """What a client of S2 sends when it is asked with models by chance; noise on it if records are protected."""
    sent, asked, answers, last = [], [], [], np.zeros(client.features)
    for _ in range(count):
        what, answer = rng.normal(size=(2, client.features))
        phi = rho * (answer - last)
        w = client.step(what[None], phi[None], rho, np.zeros(1), data)[0] + noise * rng.normal(size=client.features)
        last = w - phi / rho
        sent.append(last)
        asked.append(what)
        answers.append(answer)
    return np.array(sent), np.array(asked), np.array(answers)


def reconstruction():
    """The moments of a client's records from its ADMM steps."""
    rng, features = np.random.default_rng(3), 4
    x, y = rng.normal(size=(6, features)), rng.normal(size=6)
    client = Proximal(features, 6)
    data = {name: value[None] for name, value in client.prepare((x, y)).items()}
    lines = []
    for noise in (0.0, 0.1, 1.0):
        steps = steps_of(client, data, noise, 60, rng)
        points = []
        for t in range(2, 61):
            matrix, _ = duals.parabola(*duals.gradients_of_steps(*(part[:t] for part in steps), 1.5))
            points.append((t, min(off_by(matrix, x.T @ x / 6), 2.0)))
        name = f"noise {noise:g}" if noise else "without noise"
        print(f"duals, {name}: off by {points[-1][1]:.1e} after 60 steps")
        lines.append((name, points))
    return lines_svg(lines, "Error of a client's second moments", x_name="steps heard", y_name="relative error")


def membership():
    """Personal models of few records tell whose they are."""
    rng, lines = np.random.default_rng(5), []
    truth = rng.normal(size=8)
    for noise in (0.0, 0.5, 2.0):
        inside, outside = [], []
        for _ in range(2000):
            x = rng.normal(size=(20, 8))
            y = x @ truth + rng.normal(size=20)
            w = np.linalg.lstsq(x[:10], y[:10], rcond=None)[0] + noise * rng.normal(size=8)
            scores = members.by_loss((y - x @ w) ** 2)
            inside.append(scores[0])
            outside.append(scores[-1])
        found = members.told(np.array(outside), np.array(inside))
        marks = np.quantile(outside, np.linspace(0.0, 1.0, 60))
        name = f"noise {noise:g} in the model" if noise else "model as it is"
        print(f"membership, {name}: area {found.area:.2f}, hits at 1 % false alarms {found.hits_at_one_percent:.0%}")
        curve = [(float(np.mean(np.array(outside) > m)), float(np.mean(np.array(inside) > m))) for m in marks]
        lines.append((name, sorted(curve)))
    return lines_svg(lines, "Whose records are in a personal model", x_name="false alarms", y_name="hits")


def support():
    """The edges that are there, whatever noise is on their weights, against a graph of what was released."""
    x = signals()[:300]
    other = x.copy()
    other[0] = 12.0 * np.eye(NODES)[3]
    both = np.stack([solve(squared_distances(table)[None], ALPHA, BETA, 0.0).w[0] for table in (x, other)])
    rng, lines = np.random.default_rng(0), {"noise on weights": [], "a noisy release": []}
    for noise in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        right = dict.fromkeys(lines, 0)
        for k in range(200):
            w = both[k % 2]
            naive = np.where(w > 0.0, np.abs(w + noise * rng.normal(size=w.size)), 0.0)
            noisy = np.maximum(squared_distances((x, other)[k % 2]) + noise * rng.normal(size=w.size), 1e-3)
            released = solve(noisy[None], ALPHA, BETA, 0.0).w[0]
            for name, graph in zip(lines, (naive, released), strict=True):
                right[name] += graphs.support_agreement(graph, both).argmax() == k % 2
        for name, points in lines.items():
            points.append((noise, right[name] / 200))
    naive = lines["noise on weights"][-1][1]
    print(f"support: {graphs.support_differs(*both)} pairs differ; with noise on their weights {naive:.0%} are told")
    return lines_svg(
        list(lines.items()), "One record, told by edges alone", x_name="noise", y_name="right guesses", log_x=True
    )


def side_channels():
    """How long a site takes to learn its graph depends on its signals; a release takes the same for all."""
    x = signals()[:300]
    tables = (x, np.where(np.arange(NODES) < 2, 1e-3, 1.0) * x)
    distances = [squared_distances(table)[None] for table in tables]
    task, door = SmoothGraph(NODES, "moment"), Door(1, Ledger(), Gaussian(3.0))
    data = [task.bounded({name: value[None] for name, value in task.prepare(t).items()}) for t in tables]

    def learn(world, trial):
        solve(distances[world], ALPHA, BETA, 0.0)

    def release(world, trial):
        door.gate(["a"], 2 * trial + world).release(data[world], "moment")

    lines = []
    for name, work in (("learning", learn), ("releasing", release)):
        times = [[], []]
        for trial in range(400):
            for world in (0, 1):
                begun = time.perf_counter()
                work(world, trial)
                times[world].append(1e3 * (time.perf_counter() - begun))
        print(f"timing, {name}: told apart in {channels.timing(*times):.0%} of 800 trials")
        for world, values in zip(("one table", "another"), times, strict=True):
            ranked = np.sort(values)[: int(0.95 * len(values))]
            lines.append((f"{name}: {world}", [(float(v), k / len(ranked)) for k, v in enumerate(ranked)]))
    return lines_svg(lines, "How long a site takes", x_name="milliseconds", y_name="share of trials done", log_x=True)


def audited():
    """How near the lower bounds of an audit come to the accounted epsilon, by the number of pairs of runs."""
    mu = 1.0 / gaussian_multiplier(2.0, 1e-6, 1)
    accounted = gaussian_epsilon(mu, 1e-6)
    names = ("accounted", "fit, the same noise", "fit, own noise", "Clopper-Pearson")
    rng, lines, fitted = np.random.default_rng(0), {name: [] for name in names}, {}
    for pairs in (200, 500, 1500, 5000, 10_000, 50_000):
        found = []
        for _ in range(20):
            own = rng.normal(size=(2, pairs)) + np.array([[0.0], [mu]])
            same, cut = own[:1] + np.array([[0.0], [mu]]), pairs // 5
            plain = bounds.by_threshold(own[:, :cut], own[:, cut:], 1e-6, 0.99).epsilon
            fits = [bounds.by_pairs(scores[:, cut:], 1e-6, 0.99).epsilon for scores in (same, own)]
            found.append((accounted, *fits, plain))
        fitted[pairs] = np.array(found)[:, 1] / accounted
        for name, value in zip(names, np.mean(found, axis=0), strict=True):
            lines[name].append((pairs, float(value)))
    shares = fitted[10_000]
    print(
        f"audit: with 10,000 pairs the fit reaches {shares.mean():.1%}, from {shares.min():.1%} to {shares.max():.1%}"
    )
    return lines_svg(list(lines.items()), "Lower bounds", x_name="pairs of runs", y_name="epsilon", log_x=True)


def standalone(picture):
    """A chart of a page as a picture of its own: with a name space, a font and a sheet of paper."""
    width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', picture).groups()
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    sheet = f'><rect width="{width}" height="{height}" fill="{LIGHT.paper}"/>'
    own = picture.replace("<svg ", head, 1).replace('font-family="inherit"', f'font-family="{FONT}"', 1)
    return own.replace(">", sheet, 1)


PICTURES = {
    "inversion": inversion,
    "unmixing": unmixing,
    "duals": reconstruction,
    "members": membership,
    "support": support,
    "channels": side_channels,
    "audit": audited,
}


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, draw in PICTURES.items():
        (folder / f"attack-{name}.svg").write_text(standalone(draw()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
