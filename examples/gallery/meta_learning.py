"""Meta-learning: a private start that a new client makes its own by one step.

Points lie in three places. What those in a place are called, one name or another, differs from client to client, so no
single model suits all. Twenty-four clients learn a start together, with epsilon 4 at delta 1e-4 for every record of a
client (leaving its place empty), against the server, other clients, the wire and the public. Twenty clients that took
no part make one step on twenty records of their own; nothing leaves them. The seed makes this a rehearsal, which
protects nobody.

    python examples/gallery/meta_learning.py picture.svg
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from silograph import PrivateMetaClassifier

rng = np.random.default_rng(2)
angles = np.pi / 2 + np.arange(3) * 2 * np.pi / 3
places = np.stack([np.cos(angles), np.sin(angles)], axis=1)


def records(names, count):
    """Points, and their labels 0 to 5: two for every place, of which the client uses one."""
    place = rng.integers(3, size=count)
    return places[place] + 0.25 * rng.normal(size=(count, 2)), 2 * place + names[place]


sources = [records(rng.integers(2, size=3), 400) for _ in range(24)]
start = PrivateMetaClassifier(
    hidden=[24], rounds=60, rate=0.3, inner_step=0.5, epsilon=4, delta=1e-4, classes=list(range(6)), random_state=3
).fit(sources)

new = []
for _ in range(20):
    names = rng.integers(2, size=3)
    x, y = records(names, 20)
    mine = start.personalise(x, y)
    others, answers = records(names, 200)
    new.append((*((model.predict(others) == answers).mean() for model in (start, mine)), x, y, mine))
before, after = (np.mean([client[k] for client in new]) for k in (0, 1))
cost = start.privacy_["guarantees"][0]
print(f"epsilon {cost['epsilon']:.4g} at delta {cost['delta']:g} for every record of a source client")
print(f"new clients' other records: {before:.0%} right from the start itself, {after:.0%} after one own step")

_, _, x, y, mine = min(new, key=lambda client: client[0])
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", sharey=True)
grid = np.stack(np.meshgrid(np.linspace(-2, 2, 150), np.linspace(-2, 2, 150)), -1)
colours = {"cmap": "Paired", "vmin": 0, "vmax": 11}
for axis, (title, model) in zip(axes, (("The shared start", start), ("After one step of its own", mine)), strict=True):
    regions = model.predict(grid.reshape(-1, 2)).reshape(150, 150)
    axis.imshow(regions, origin="lower", extent=(-2, 2, -2, 2), alpha=0.4, **colours)
    axis.scatter(*x.T, c=y, s=30, edgecolor="black", linewidth=0.6, **colours)
    axis.set(title=title, xticks=[], yticks=[])
figure.suptitle("Twenty records of the new client whom the start suits least, and what a model says around them")
figure.savefig(sys.argv[1])
