"""diffprivlib's pooled logistic regression on dealt digits, for records under the same epsilon; prints JSON."""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LogisticRegression


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("file", type=Path)
    parser.add_argument("epsilon", type=float)
    parser.add_argument("seed", type=int)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    given = np.load(asked.file)
    norm = float(np.linalg.norm(given["x"], axis=1).max())  # it may look: that is more than it would know
    model = LogisticRegression(epsilon=asked.epsilon, data_norm=norm, random_state=asked.seed)
    model.fit(given["x"], given["y"])
    print(json.dumps({"error": 1.0 - model.score(given["test_x"], given["test_y"])}))


if __name__ == "__main__":
    main()
