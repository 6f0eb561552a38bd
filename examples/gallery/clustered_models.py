"""Clustered models: clients with few records learn from those that are like them.

Seventy-two clients of six servers, four records each, eight features. Four clusters, of which two and two are alike.
Every client gets a model of its own, by random effects, the default, and by S2's ADMM (`learner="papers"`), of
which the right picture shows who borrows from whom. There is no privacy here: servers see their clients' updates.

    python examples/gallery/clustered_models.py picture.svg
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from silograph import ClusteredModels

CLIENTS, SERVERS, FEATURES, RECORDS = 72, 6, 8, 4
NAMES = ("asthma", "heart failure", "diabetes", "stroke")
rng = np.random.default_rng(4)
pairs = rng.normal(size=(2, FEATURES))
truth = np.array([pairs[k // 2] + 0.2 * rng.normal(size=FEATURES) for k in range(4)])


def records(client, count):
    x = rng.normal(size=(count, FEATURES))
    return x, x @ truth[client % 4] + rng.normal(size=count)


clients = [records(k, RECORDS) for k in range(CLIENTS)]
tests = [records(k, 200) for k in range(CLIENTS)]
homes = [f"server {k // 4 % SERVERS}" for k in range(CLIENTS)]
clusters = [NAMES[k % 4] for k in range(CLIENTS)]
effects, admm = (
    ClusteredModels(intercept=False, learner=learner).fit(clients, servers=homes, clusters=clusters)
    for learner in (None, "papers")
)


def ridge(parts):
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return np.linalg.solve(x.T @ x + 0.1 * np.eye(FEATURES), x.T @ y)


everybody = ridge(clients)
errors = {
    "each alone": [((y - x @ ridge([clients[k]])) ** 2).mean() for k, (x, y) in enumerate(tests)],
    "one for all": [((y - x @ everybody) ** 2).mean() for x, y in tests],
    "by ADMM (S2)": [((y - admm.predict(x, k)) ** 2).mean() for k, (x, y) in enumerate(tests)],
    "random effects": [((y - effects.predict(x, k)) ** 2).mean() for k, (x, y) in enumerate(tests)],
}
print("mean squared error on other records of the same clients; 1.00 is the noise itself")
for name, values in errors.items():
    print(f"{name:14} {np.mean(values):6.2f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", width_ratios=(1.4, 1))
left.boxplot(errors.values(), tick_labels=errors.keys(), medianprops={"color": "#2166a5"})
left.axhline(1.0, color="#0a7b6c", linestyle=":", label="the noise itself")
left.set(yscale="log", ylabel="mean squared error", title="Every client's model on other records")
left.legend(frameon=False)
labels = sorted(NAMES)
image = right.imshow(np.where(np.eye(4), np.nan, 100 * admm.exchange_), cmap="Blues", vmin=0.0)
right.set_xticks(range(4), labels, rotation=15)
right.set_yticks(range(4), labels)
right.set_title("S2: what a cluster takes of others in a round, %")
figure.colorbar(image)
figure.savefig(sys.argv[1])
