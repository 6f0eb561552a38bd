"""`silograph predict`: models of a finished run, asked about other records, against weights read by hand."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from silograph import PrivateMetaClassifier, open_run
from silograph.core.errors import InputError

RNG_SEED, FEATURES = 3, ["age", "pulse"]


def records(seed, rows=60, negative=0):
    """Six agents' records whose label depends on the first feature, and whose number on the agent too."""
    rng = np.random.default_rng(seed)
    agent = rng.integers(6, size=rows)
    x = rng.normal(size=(rows, 2))
    label = np.where(x[:, 0] > 0.2, 1, negative)
    number = x @ [2.0, -1.0] + agent
    return (
        pd.DataFrame({"agent": [f"a{k}" for k in agent], "kind": "k", "age": x[:, 0], "pulse": x[:, 1]}),
        label,
        number,
    )


def run_of(folder, silograph, method, negative=0, cluster=False):
    files = []
    for k, region in enumerate(("north", "south")):
        frame, label, number = records(k, negative=negative)
        frame["agent"] = [f"{name}{region[0]}" for name in frame["agent"]]
        frame["answer"] = number if cluster else label
        frame.drop(columns=[] if cluster else "kind").to_csv(folder / f"{region}.csv", index=False)
        files.append(f"{region}.csv")
    column = 'cluster = "kind"\n' if cluster else ""
    data = f'[data]\nfiles = {json.dumps(files)}\nagent = "agent"\ntarget = "answer"\n{column}'
    text = f"format = 1\n{data}[method]\n{method}"
    (folder / "plan.toml").write_text(text)
    assert silograph("run", folder / "plan.toml", "-o", folder / "run")[0] == 0
    return folder / "run"


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def labelled(tmp_path, silograph):
    """A run whose target has these two labels, and records to predict with their own."""

    def run(labels, method, data="", cluster=False):
        files = []
        for k, region in enumerate(("north", "south")):
            frame, second, _ = records(k)
            frame["agent"] += region[0]
            frame["answer"] = np.array(labels)[second]
            frame.drop(columns=[] if cluster else "kind").to_csv(tmp_path / f"{region}.csv", index=False)
            files.append(f"{region}.csv")
        column = 'cluster = "kind"\n' if cluster else ""
        data = f'[data]\nfiles = {json.dumps(files)}\nagent = "agent"\ntarget = "answer"\n{column}{data}\n'
        (tmp_path / "plan.toml").write_text(f"format = 1\nseed = 1\n{data}[method]\n{method}")
        assert silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "run")[0] == 0
        frame, second, _ = records(9)
        return tmp_path / "run", frame[["pulse", "age"]], np.array(labels)[second]

    return run


REGIONS, PRIVATE = 'name = "graph_federation"', 'masks = "skipped"\n[privacy]\nepsilon = 300.0\n'
LABELS = {
    "-1/1": ((-1, 1), "", REGIONS, "centroid"),
    "0/1": ((0, 1), "", REGIONS, "centroid"),
    "1/2": ((1, 2), 'classes = ["1", "2"]', REGIONS, "centroid"),
    "words": (("yes", "no"), 'classes = ["yes", "no"]', REGIONS, "south"),
    "truth": ((False, True), 'classes = ["False", "True"]', REGIONS, "centroid"),
    "private": (
        (1, 2),
        'classes = ["1", "2"]\nbounds = {age = [-3, 3], pulse = [-3, 3]}',
        f"{REGIONS}\n{PRIVATE}",
        "south",
    ),
    "cluster": ((-1, 1), "", 'name = "clustered_admm"\nloss = "logistic"', "k"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_predictions_are_the_targets_labels_with_and_without_answers_in_the_table(kind, labelled, tmp_path, silograph):
    labels, data, method, who = LABELS[kind]
    folder, x, y = labelled(labels, method, data, kind == "cluster")
    run = open_run(folder)
    guess = run.predict(x, who)
    assert set(guess.tolist()) == set(labels)
    assert run.labels == labels
    np.testing.assert_array_equal(guess, np.where(run.predict_proba(x, who)[:, 1] >= 0.5, labels[1], labels[0]))
    assert run.score(x, y, who) == run.score(x.to_numpy()[:, ::-1], list(y), who) == (guess == y).mean() > 0.6
    x.to_csv(tmp_path / "asked.csv", index=False)
    x.assign(answer=y).to_csv(tmp_path / "answered.csv", index=False)
    for name in ("asked", "answered"):
        out = tmp_path / f"{name}-out.csv"
        code, text, _ = silograph("predict", folder, tmp_path / f"{name}.csv", "-o", out, "--who", who, "--json")
        assert code == 0
        assert [row["prediction"] for row in rows_of(out)] == [str(label) for label in guess]
        assert json.loads(text)["score"] == (run.score(x, y, who) if name == "answered" else None)


def test_labels_that_only_protected_records_tell_are_told_to_nobody(labelled):
    public = "bounds = {age = [-3, 3], pulse = [-3, 3]}"
    folder, x, y = labelled((-1, 1), f"{REGIONS}\n{PRIVATE}", public)
    run = open_run(folder)
    assert run.result["task"]["labels"] == [0, 1]
    assert set(run.predict(x, "south").tolist()) == {0, 1}
    assert run.score(x, y, "south") == run.score(x, np.where(y == 1, 1, 0), "south") > 0.6


def test_a_folder_without_labels_opens_and_has_those_of_its_plan(labelled):
    folder, x, _ = labelled(("yes", "no"), REGIONS, 'classes = ["yes", "no"]')
    path = folder / "result.json"
    told = json.loads(path.read_text())
    guess = open_run(folder).predict(x, "south")
    del told["task"]["labels"]
    path.write_text(json.dumps(told))
    np.testing.assert_array_equal(open_run(folder).predict(x, "south"), guess)


def test_answers_that_are_no_label_or_missing_are_refused_with_their_place(labelled):
    folder, x, y = labelled((-1, 1), REGIONS)
    run = open_run(folder)
    for answer, found in ((7, "found 7"), (None, "it is missing")):
        with pytest.raises(InputError, match=f"record 3: expected -1 or 1, but {found}"):
            run.score(x, [answer if k == 2 else label for k, label in enumerate(y)], "south")
    with pytest.raises(InputError, match="an answer for each of the 60 records"):
        run.score(x, y[:3], "south")


def test_arrays_are_scaled_by_the_plans_bounds_as_tables_are(labelled):
    folder, x, y = labelled((0, 1), REGIONS, "bounds = {age = [-1, 5], pulse = [-9, 3]}")
    run = open_run(folder)
    array = x[FEATURES].to_numpy()
    before = array.copy()
    np.testing.assert_array_equal(run.predict_proba(array, "north"), run.predict_proba(x, "north"))
    assert run.score(array, y, "north") == run.score(x, y, "north") > 0.8
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("negative", [0, -1])
def test_regions_predict_classes_as_the_table_names_them(negative, tmp_path, silograph):
    run = run_of(tmp_path, silograph, 'name = "graph_federation"\nstep = 2.0\nrounds = 20\n', negative)
    frame, label, _ = records(9, negative=negative)
    asked = frame[["pulse", "agent", "age"]].assign(answer=label)  # another order of columns
    asked.to_csv(tmp_path / "asked.csv", index=False)
    weights = {row["feature"]: float(row["weight"]) for row in rows_of(run / "models" / "south.csv")}
    margin = frame["age"] * weights["age"] + frame["pulse"] * weights["pulse"] + weights["intercept"]
    code, text, _ = silograph(
        "predict", run, tmp_path / "asked.csv", "-o", tmp_path / "out.csv", "--who", "south", "--json"
    )
    assert code == 0
    found = rows_of(tmp_path / "out.csv")
    guess = np.where(margin >= 0.0, 1, negative)
    assert [int(row["prediction"]) for row in found] == guess.tolist()
    np.testing.assert_allclose([float(row["probability"]) for row in found], 1.0 / (1.0 + np.exp(-margin)))
    told = json.loads(text)
    assert (told["measure"], told["score"]) == ("accuracy", (guess == label).mean())
    opened = open_run(run)
    assert opened.score(frame, label, "south") == told["score"]
    np.testing.assert_array_equal(opened.predict(frame[FEATURES].to_numpy(), "south"), guess)
    assert silograph("predict", run, tmp_path / "asked.csv", "-o", tmp_path / "mean.csv")[0] == 0
    assert {row["model"] for row in rows_of(tmp_path / "mean.csv")} == {"centroid"}


def test_every_record_is_answered_by_its_own_client(tmp_path, silograph):
    run = run_of(tmp_path, silograph, 'name = "clustered_admm"\nrounds = 20\n', cluster=True)
    frame, _, number = records(9)
    frame["agent"] += "n"
    frame.assign(answer=number).to_csv(tmp_path / "asked.csv", index=False)
    assert silograph("predict", run, tmp_path / "asked.csv", "-o", tmp_path / "out.csv")[0] == 0
    models = {row["client"]: row for row in rows_of(run / "models" / "clients.csv")}
    for (_, record), row in zip(frame.iterrows(), rows_of(tmp_path / "out.csv"), strict=True):
        model = models[row["model"]]
        assert row["model"] == f"north/{record['agent']}"
        expected = sum(float(model[name]) * record[name] for name in FEATURES) + float(model["intercept"])
        np.testing.assert_allclose(float(row["prediction"]), expected, rtol=1e-12)
    frame.drop(columns="agent").to_csv(tmp_path / "nobody.csv", index=False)
    code, _, error = silograph("predict", run, tmp_path / "nobody.csv", "-o", tmp_path / "no.csv")
    assert (code, "--who" in error, (tmp_path / "no.csv").exists()) == (2, True, False)
    assert silograph("predict", run, tmp_path / "nobody.csv", "-o", tmp_path / "k.csv", "--who", "k")[0] == 0
    frame.replace("a0n", "stranger").to_csv(tmp_path / "strange.csv", index=False)
    code, _, error = silograph("predict", run, tmp_path / "strange.csv", "-o", tmp_path / "no.csv")
    assert (code, "'stranger' is none of them" in error) == (2, True)
    with pytest.raises(InputError, match="logistic"):
        open_run(run).predict_proba(frame[FEATURES], "k")


def test_a_clients_own_network_predicts_and_scores_numbers_it_knew_as_texts(tmp_path, silograph):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    parts = []
    for k in range(3):
        x = rng.normal(size=(20, 2))
        parts.append((pd.DataFrame(x, columns=FEATURES), (x[:, 0] > 0.0).astype(int) + 3))
        parts[-1][0].assign(answer=parts[-1][1]).to_csv(tmp_path / f"c{k}.csv", index=False)
    (tmp_path / "plan.toml").write_text(
        'format = 1\nseed = 1\n[data]\nfiles = ["c0.csv", "c1.csv", "c2.csv"]\ntarget = "answer"\n'
        '[method]\nname = "private_meta"\nmodel = "linear"\nrounds = 20\nrate = 1.0\n'
    )
    assert silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "run")[0] == 0
    start = tmp_path / "run" / "models" / "start.npz"
    model = PrivateMetaClassifier.load(start)
    x, y = parts[0]
    assert model.classes_.tolist() == [3, 4]
    assert model.score(x, y) == (model.predict(x) == y).mean()
    assert model.score(x, y.astype(str)) == model.score(x, y.astype(float)) == model.score(x, y)
    code, text, _ = silograph("predict", start, tmp_path / "c0.csv", "-o", tmp_path / "out.csv", "--json")
    assert (code, json.loads(text)["score"]) == (0, model.score(x, y))
    assert [int(row["prediction"]) for row in rows_of(tmp_path / "out.csv")] == model.predict(x).tolist()


def test_a_word_among_numbers_is_refused_with_its_place(tmp_path, silograph):
    run = run_of(tmp_path, silograph, 'name = "graph_federation"\nstep = 2.0\nrounds = 5\n')
    frame, _, _ = records(9)
    frame.astype({"age": object}).assign(age=["old" if k == 3 else age for k, age in enumerate(frame["age"])]).to_csv(
        tmp_path / "asked.csv", index=False
    )
    code, _, err = silograph("predict", run, tmp_path / "asked.csv", "-o", tmp_path / "out.csv")
    assert code == 2
    assert "record 4, age: expected a number, but found 'old'" in err
    assert not (tmp_path / "out.csv").exists()
