"""What the command line says of a finished run, and of a plan's budget."""

from __future__ import annotations

import os
from pathlib import Path

from silograph.console import bill, cost, table
from silograph.core.types import Json


def summarise(result: Json, folder: Path) -> None:
    words = {
        "graph_federation": _models_summary,
        "clustered_admm": _clusters_summary,
        "private_meta": _meta_summary,
    }
    words.get(result["method"], _graphs_summary)(result, folder)


def _clusters_summary(result: Json, folder: Path) -> None:
    rows = [(c["name"], f"{c['clients']}", _error(c["test_error"])) for c in result["clusters"]]
    table(("cluster", "clients", "test error"), rows)
    if (test := result["test"]) is not None:
        lines = [(row["method"], _error(row["test_error"])) for row in result["comparison"]]
        print()
        table(("all clients", test["measure"]), [*lines, ("without features", _error(test["baseline"]))])
    print(f"{result['rounds']} rounds, disagreement {result['disagreement']:.2e}")
    print()
    table(("site", "privacy", "against", "how"), bill(result["privacy"]["guarantees"]))
    _closing(result, folder)


def _meta_summary(result: Json, folder: Path) -> None:
    test = result["test"]
    if test is not None:
        rows = [(c["name"], f"{c['records']}", _error(c["before"]), _error(c["after"])) for c in result["new"]]
        table(("new client", "records", "start", "personal"), rows)
        print()
        lines = [(row["method"], _error(row["score"])) for row in result["comparison"]]
        table(("all new clients", test["measure"]), [*lines, ("without features", _error(test["baseline"]))])
    size = result["model"]["parameters"]
    print(f"{len(result['clients'])} source clients, {result['rounds']} rounds, {size} parameters")
    print()
    table(("site", "privacy", "against", "how"), bill(result["privacy"]["guarantees"]))
    say_claim(next((g["claim"] for g in result["privacy"]["guarantees"]), None))
    _closing(result, folder)


def say_claim(claim: Json | None) -> None:
    if claim is not None:
        claimed = f"epsilon {claim['epsilon']:.4g} at delta {claim['delta']:.3g}"
        print(f"{claim['basis']} would claim {claimed}: {claim['defect']}")


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _models_summary(result: Json, folder: Path) -> None:
    rows = [(unit["name"], f"{unit['agents']}", _error(unit["test_error"])) for unit in result["units"]]
    rows.append(("centroid", "", _error(result["centroid"]["test_error"])))
    table(("unit", "agents", "test error"), rows)
    if result["test"] is not None:
        print(f"test: {result['test']['measure']}; without features {result['test']['baseline']:.4f}")
    print(f"{result['rounds']} rounds, disagreement {result['disagreement']:.2e}")
    print()
    table(("unit", "privacy", "against", "how"), bill(result["privacy"]["guarantees"]))
    _closing(result, folder)


def _closing(result: Json, folder: Path) -> None:
    for note in result["privacy"]["notes"]:
        print(f"note: {note}")
    print(f"report: {os.path.relpath(folder / 'report.html')}")


def _graphs_summary(result: Json, folder: Path) -> None:
    nodes = len(result["nodes"])
    costs = {g["site"]: g for g in result["privacy"]["guarantees"]}
    rows = [
        (
            site["name"],
            f"{site['signals']}",
            *(("", "") if site["edges"] is None else (f"{site['edges']}", f"{2 * site['edges'] / nodes:.1f}")),
            f"{site['weight']:.3g}",
            _worth(site),
            cost(costs[site["name"]]),
        )
        for site in result["sites"]
    ]
    consensus = result["consensus"]
    edges = consensus["edges"]
    rows.append(("consensus", "", f"{edges}", f"{2 * edges / nodes:.1f}", "", _worth(consensus), ""))
    header = ("site", result.get("counted", "signals"), "edges", "mean degree", "weight", "worth", "privacy")
    noisy = "effective_records" in consensus
    shown = [k for k, name in enumerate(header) if noisy or name != "worth"]
    table(tuple(header[k] for k in shown), [tuple(row[k] for k in shown) for row in rows])
    if noisy:
        print("worth: so many records without noise would give as good a graph; 20 nodes need about 500")
    print(f"{_times(result['rounds'], 'round')}, {_sent(result)}{_exactness(result)}")
    _say_proven(result)
    drawn = result["sites"] if result["site_graphs"] else [consensus]
    asked, got = result["degree"], 2 * sum(graph["edges"] for graph in drawn) / nodes / len(drawn)
    if asked is not None and abs(got - asked) > 0.05 * asked:
        print(f"note: degree {asked:g} was asked for and {got:.1f} is the nearest that was found")
    asked, got = result["consensus_density"], 2 * edges / nodes / (nodes - 1)
    if asked is not None and abs(got - asked) > 0.1 * asked:
        print(f"note: a consensus of density {asked:g} was asked for and {got:.2g} is the nearest that was found")
    _closing(result, folder)


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _sent(result: Json) -> str:
    """What a site sent in all; the largest, as sites that came late sent less."""
    most = max(site["bytes_sent"] for site in result["sites"])
    return f"{most / 1e6:.3g} MB sent by a site, " if most >= 1e6 else f"{most / 1e3:.3g} kB sent by a site, "


def _say_proven(result: Json) -> None:
    if result["candidates"] is None:
        return
    shares = [site["proven_nodes"] for site in result["sites"] if "proven_nodes" in site]
    edges = f"{result['candidates']} candidate edges"
    if not shares:
        print(f"{edges}: the optimum among them; nothing is known about others")
    elif min(shares) == 1.0:
        print(f"{edges}: the optimum among all pairs, as no other can be active")
    else:
        print(f"{edges}: proven to be all that matter at {min(shares):.1%} of the nodes; more --neighbours prove more")


def _worth(graph: Json) -> str:
    records = graph.get("effective_records")
    return "" if records is None else f"{records:.0f}"


def _exactness(result: Json) -> str:
    gap = result["certified_gap"]
    if result["solver"] == "paper":
        return "no certificate (solver paper)"
    if gap is None:
        return "stopped too early for a certificate: allow more with --rounds"
    return f"certified gap {gap:.1e}" + ("" if gap <= 1e-6 else ": not solved, allow more with --rounds")


def say_spends(payload: Json) -> None:
    """Where the budget of a record goes, and what other rounds and rates would need."""
    if payload.get("noise_multiplier") is not None and payload.get("spends"):
        print(f"noise of a sum: sigma {payload['noise_multiplier']:.4g} times the clip, for all that a sample gives")
        rows = [
            (s["set"], s["release"], f"{s['share']:.0%}", f"{s['times']}", f"{s['noise']:.3g}")
            for s in payload["spends"]
        ]
        print()
        table(("set", "release", "share of its budget", "times", "noise in a coordinate of the mean"), rows)
    if payload.get("planner"):
        print()
        rows = [
            (f"{p['rounds']}", f"{p['rate']:g}", f"{p['sigma']:.4g}", f"{p['noise']:.3g}", "this plan" * p["planned"])
            for p in payload["planner"]
        ]
        table(("rounds", "rate", "sigma", "noise / movement", ""), rows)
        print("noise / movement: in the shared start after all rounds, over the most that they can move it")
        print()
