"""The command of an audit: `silograph audit plan.toml`, or of a finished run: `silograph audit out`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from silograph.console import AsJson, at_most, bar, say

if TYPE_CHECKING:
    from silograph.run.audit import Finding


def register(app: typer.Typer) -> None:
    app.command()(audit)


def audit(
    target: Annotated[Path, typer.Argument(help="A plan file, or the folder of a finished run.")],
    observer: Annotated[
        Literal["server", "neighbour", "wire", "public"] | None,
        typer.Option(help="Who attacks; left out: the strongest that the plan promises something to be safe from."),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="How many trials, each a pair of runs: one without the canary, one with it. "
            "Left out: 10,000, or as many as take about a minute."
        ),
    ] = None,
    one_run: Annotated[
        bool, typer.Option("--one-run", help="Many canaries in a single run instead: quick, and far weaker.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Attack a plan through its own pipeline: how much of its promise can an attack use up?

    Of a finished run its plan is attacked, with the tables where it says; what is found is kept in the folder as
    audit.json and shown in its report. Exit code 1 if the promise is refuted.
    """
    from silograph.report.build import build as build_report
    from silograph.run.audit import audit as attack
    from silograph.run.audit import audit_run

    finished = target.is_dir()
    with bar("attacking") as update:

        def progress(share: float) -> None:
            update(share, f"{share:.0%}")

        if finished:
            finding = audit_run(target, build_report, observer, runs, one_run, progress=progress)
        else:
            finding = attack(target, observer, runs, one_run, progress=progress)

    def words() -> None:
        _words(finding)
        if finished:
            print(f"report: {target / 'report.html'}")

    say(as_json, finding.to_json(), words)
    if finding.refuted:
        raise typer.Exit(1)


def _words(finding: Finding) -> None:
    if not finding.claimed:
        print(f"Against the observer '{finding.observer}' no epsilon is claimed: something leaves without protection.")
        for each in finding.attacks:
            print(f"attack: {each['attack']}, after {each['aim']}")
            print(f"  {each['words']}")
        return
    accounted, lower = finding.accounted, finding.epsilon_lower
    print(f"The plan promises to hide {finding.unit} from the observer '{finding.observer}', up to")
    print(f"  epsilon {at_most(accounted.epsilon)} at delta {at_most(accounted.delta)} ({accounted.accountant}).")
    print(f"canary: {finding.canary} (at {finding.site})")
    if finding.leak is not None:
        print(f"REFUTED. {finding.leak}.")
        print("Something leaves past the gate: whatever the noise, the promise does not hold. Do not run this.")
        return
    assert finding.bound is not None
    print(f"{finding.trials} trials, each {finding.trial}.")
    print(f"The attacker could tell which was which in {finding.accuracy:.1%} of cases (a coin: 50 %).")
    print(f"With {finding.bound.confidence:.0%} confidence epsilon is at least {_at_least(lower)}.")
    print(f"  how: {finding.bound.how}; {finding.distinguisher}")
    if finding.refuted:
        print(
            "REFUTED. The attack got more than the promise allows: noise, clip or accounting is wrong. Do not run this."
        )
        return
    share = lower / accounted.epsilon if accounted.epsilon else 0.0
    print(f"The promise stands: the attack could use {share:.0%} of it. The rest may be caution or a weak attack.")
    print("An audit can refute a promise, not prove it; what it says nothing of is in docs/threat-model.md.")


def _at_least(value: float) -> str:
    """Rounded down to three digits: what is printed was found."""
    if value <= 0.0 or math.isinf(value):
        return "0" if value <= 0.0 else "infinity"
    digits = 2 - math.floor(math.log10(value))
    return f"{math.floor(value * 10.0**digits) / 10.0**digits:g}"
