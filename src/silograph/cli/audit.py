"""The command of an audit: of a plan (`silograph audit plan.toml`), a finished run (`out`), or a deployment."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from silograph.cli.console import LOOK, AsJson, bar, register_in, say, show
from silograph.core.errors import InputError, InterruptError
from silograph.report.printed import at_most, table

if TYPE_CHECKING:
    from silograph.audit.deployment import DeploymentFinding, StrategyFinding
    from silograph.audit.finding import Finding

REFUTED = 3  # exit code


Target = Annotated[
    Path,
    typer.Argument(help="A plan file; a run folder, which keeps the finding; or a deployment's folder."),
]
Attacker = Annotated[
    Literal["server", "neighbour", "wire", "public"] | None,
    typer.Option(help="Who attacks (default: the first of these from whom the plan promises to hide something)."),
]
Runs = Annotated[
    int | None,
    typer.Option(
        help="How many trials, each a pair of runs: one without the canary, one with it (default: 10,000, or as many "
        "as take about a minute). Of a deployment: per strategy."
    ),
]
OneRun = Annotated[
    bool, typer.Option("--one-run", help="Put many canaries into a single run: takes seconds, but is less sharp.")
]
Seconds = Annotated[float | None, typer.Option(help="Of a deployment: about how many seconds to try (default: 90).")]
Coalitions = Annotated[
    bool,
    typer.Option(
        "--coalitions",
        help="Of regions with secure sums: play agents and servers who join up, and compare what they find with what "
        "the plan states against them.",
    ),
]
OneStrategy = Annotated[
    str | None, typer.Option(help="Of a deployment: play only this strategy, for example longer one that was refuted.")
]


def register(app: typer.Typer) -> None:
    register_in(app, LOOK, audit)


def audit(
    target: Target,
    observer: Attacker = None,
    runs: Runs = None,
    one_run: OneRun = False,
    seconds: Seconds = None,
    strategy: OneStrategy = None,
    coalitions: Coalitions = False,
    as_json: AsJson = False,
) -> None:
    """Attack a plan with its own code, and compare what the attack finds with what the plan promises.

    A plan file: the plan is attacked, and nothing is written. A run folder: its plan is attacked with the tables that
    it names; the finding goes into audit.json in the folder and into its report. A folder of `silograph deploy`: a
    dishonest server asks its organisations questions; they hold made-up tables, and nothing is written.

    Exit code 0: not refuted. 3: refuted. 2: bad input. 1: a failure, such as a finding that could not be written (it
    is printed first). 130: Ctrl-C.
    """
    from silograph.audit.audit import audit as attack
    from silograph.audit.audit import audit_job
    from silograph.audit.kept import job_of_run

    if coalitions:
        if observer is not None or one_run or seconds is not None or strategy is not None:
            raise InputError("audit, coalitions", "no other option than --runs", "found more", "Leave them out.")
        _audit_coalitions(target, runs, as_json)
        return
    if not (target / "result.json").exists() and (deployment := _deployment_at(target)) is not None:
        _audit_deployment(deployment, observer, runs, one_run, seconds, strategy, as_json)
        return
    if seconds is not None or strategy is not None:
        raise InputError("audit, seconds and strategy", "a deployment's folder", f"{target} is none", "Use --runs.")
    finished = target.is_dir()
    if finished:
        from silograph.core.results import read_result
        from silograph.report.audits import read_audits

        job = job_of_run(target)
        read_audits(target, *read_result(target))  # what cannot be added to is refused before any work
    try:
        with bar("attacking") as update:

            def progress(share: float) -> None:
                update(share, f"{share:.0%}")

            if finished:
                finding = audit_job(job, observer, runs, one_run, progress=progress)
            else:
                finding = attack(target, observer, runs, one_run, progress=progress)
    except KeyboardInterrupt:
        todo = "Nothing was kept; the same command starts again from the beginning. --runs sets fewer trials."
        raise InterruptError(f"audit of {target}", "to finish", "it was interrupted", todo) from None
    say(as_json, finding.to_json(), lambda: _words(finding))
    if finished:
        _keep(target, finding, as_json)
    if finding.refuted:
        raise typer.Exit(REFUTED)


def _keep(folder: Path, finding: Finding, as_json: bool) -> None:
    """After the words: a disk that is full must not swallow a refutation."""
    from silograph.audit.kept import keep
    from silograph.report.build import build as build_report

    try:
        keep(folder, finding, build_report)
    except OSError as error:
        print(f"silograph: {error.filename or folder}: {error.strerror or error}. ", end="", file=sys.stderr)
        print("The finding is printed above, but could not be written into the folder.", file=sys.stderr)
        raise typer.Exit(1) from None
    if not as_json:
        print(f"report: {folder / 'report.html'}")


def _words(finding: Finding) -> None:
    from silograph.report.words import apart

    if not finding.claimed:
        print(f"The plan claims no epsilon against the observer '{finding.observer}': something leaves unprotected.")
        for each in finding.attacks:
            print(f"attack: {each['attack']}, after {each['aim']}")
            print(f"  {each['words']}")
        return
    accounted = finding.accounted
    lower, promised = apart(finding.epsilon_lower, finding.promised)
    print(f"The plan promises to hide {finding.protected_unit} from the observer '{finding.observer}', up to")
    print(f"  epsilon {promised} at delta {at_most(finding.delta)}.")
    budget = "no budget" if finding.budget is None else f"a budget of {finding.budget:g}"
    print(f"  its ledger costs {apart(0.0, accounted.epsilon)[1]} ({accounted.accountant}); the plan has {budget}.")
    if finding.rehearsal:
        print("Rehearsal: the plan has a seed, and whoever knows the seed can remove the noise. The attack was on the")
        print("  same plan with secret noise.")
    print(f"canary: {finding.canary} (at {finding.site})")
    if finding.leak is not None:
        print(f"REFUTED. {finding.leak}.")
        print("Something leaves without passing the gate, so no noise can make the promise hold. Do not run this.")
        return
    assert finding.bound is not None
    print(f"{finding.trials} trials, each {finding.trial}.")
    print(f"The attacker could tell which was which in {_percent(finding.accuracy or 0.0)} of cases (guessing: 50 %).")
    print(f"With 99 % confidence epsilon is at least {lower}.")
    print(f"  how: {finding.bound.how}; {finding.distinguisher}")
    _verdict(finding)


def _verdict(finding: Finding) -> None:
    from silograph.report.words import apart, found

    if finding.epsilon_lower > finding.promised:
        print(
            "REFUTED. The attack learned more than the promise allows: noise, clip or accounting is wrong. Do not run "
            "this."
        )
        print("  By chance an audit accuses at most 1 % of sound plans; run a second audit to be sure.")
        return
    if finding.overspent:
        spent, budget = apart(finding.accounted.epsilon, finding.promised)
        print(f"REFUTED. The ledger itself costs epsilon {spent}, more than the budget of {budget}. Do not run this.")
        return
    if not finding.could_refute:
        print(f"Could not have refuted: so few trials prove at most epsilon {found(finding.largest)}, whatever leaks.")
        print(f"  {'No feasible number is enough' if finding.enough is None else f'--runs {finding.enough} could'}.")
    elif finding.epsilon_lower == 0.0:
        print("Nothing found: the attack was too weak to show anything. That does not mean that nothing leaks.")
    else:
        share = math.floor(100.0 * finding.epsilon_lower / finding.promised)
        print(f"Not refuted: the attack proved {share} % of the promised epsilon.")
        print("  The rest may be caution or a weak attack.")
    print("An audit can refute a promise, not prove it; docs/threat-model.md says what it does not cover.")


# ---- coalitions ------------------------------------------------------------------------------------------------------


def _audit_coalitions(target: Path, runs: int | None, as_json: bool) -> None:
    from silograph.audit.coalitions import audit_coalitions
    from silograph.audit.kept import job_of_run
    from silograph.run.jobs import open_job
    from silograph.run.plan import load

    job = job_of_run(target) if target.is_dir() else open_job(load(target), target.parent)
    with bar("attacking") as update:
        found = audit_coalitions(job, runs, progress=lambda share: update(share, f"{share:.0%}"))

    def words() -> None:
        rows = [(each.who, at_most(each.stated), f"{each.found:.3g}") for each in found]
        show(table(("who joins up against an agent", "epsilon stated", "at least, found"), rows))
        refuted = [each.who for each in found if each.refuted]
        for who in refuted:
            print(f"REFUTED: {who} learned more than is stated against them. Do not run this.")
        if not refuted:
            print("Not refuted: nobody learned more than is stated (with 99 % confidence each).")

    say(as_json, {"coalitions": [each.to_json() for each in found]}, words)
    if any(each.refuted for each in found):
        raise typer.Exit(REFUTED)


# ---- deployments -----------------------------------------------------------------------------------------------------


def _deployment_at(target: Path) -> Path | None:
    from silograph.audit.deployment import deployment_at

    return deployment_at(target)


def _audit_deployment(
    folder: Path,
    observer: str | None,
    runs: int | None,
    one_run: bool,
    seconds: float | None,
    strategy: str | None,
    as_json: bool,
) -> None:
    from silograph.audit.deployment import SECONDS, audit_deployment

    if one_run or observer not in (None, "server"):
        found = "found --one-run" if one_run else f"found --observer {observer}"
        raise InputError(f"audit of {folder}", "the server as the observer, in many trials", found, "Audit the plan.")
    try:
        with bar("attacking") as update:
            finding = audit_deployment(folder, runs, SECONDS if seconds is None else seconds, strategy, progress=update)
    except KeyboardInterrupt:
        todo = "Nothing was kept; the same command starts again from the beginning. --seconds sets less time."
        raise InterruptError(f"audit of {folder}", "to finish", "it was interrupted", todo) from None
    say(as_json, finding.to_json(), lambda: _deployment_words(finding))
    if finding.refuted:
        raise typer.Exit(REFUTED)


def _deployment_words(finding: DeploymentFinding) -> None:
    from silograph.report.words import apart

    worlds = finding.worlds
    if worlds is None:
        print("The plan claims no epsilon against the server, so no question can break a promise.")
        print("`silograph audit` of the plan shows what an attack learns from what is sent.")
        return
    budget = "what its ledger says" if finding.budget is None else f"epsilon {finding.budget:g}"
    print(
        f"The plan promises {worlds.organisation}, whatever its server asks, at most {budget} at delta "
        f"{at_most(finding.delta)}."
    )
    if finding.rehearsal:
        print("Rehearsal: the plan has a seed, and whoever knows the seed can remove the noise. The attack is on the")
        print("  same plan without a seed.")
    print(f"attacked: {worlds.silo}, with made-up records: {worlds.words}")
    if worlds.steps == 2:
        print("Replacing a record is two steps of the neighbouring relation: what was paid counts twice.")
    rows = []
    for each in finding.outcomes:
        lower, paid = apart(each.epsilon_lower, each.paid)
        rows.append((each.strategy.name, lower, paid, _verdict_on(each)))
    show(table(("the server's strategy", "epsilon it got, at least", "epsilon in the ledger", "verdict"), rows))
    for each in finding.outcomes:
        _notes(each)
    if finding.refuted:
        print("REFUTED. A server can learn more than an organisation's ledger says. Do not run this.")
        print("  By chance an audit accuses at most 1 % of sound deployments; run a second audit to be sure.")
    else:
        print("Not refuted, with 99 % confidence for all strategies together.")
        print("An audit can refute a promise, not prove it; docs/threat-model.md says what it does not cover.")


def _verdict_on(each: StrategyFinding) -> str:
    if each.refuted:
        return "REFUTED"
    if not each.released:
        return "nothing was released"
    return "not refuted" if each.could_refute else "could not have refuted"


def _notes(each: StrategyFinding) -> None:
    """Only what needs to be said."""
    from silograph.report.words import apart, found

    name = each.strategy.name
    if each.refuted:
        print(f"{name}: {each.strategy.words}.")
        print(f"  seen: {each.leak or each.observation}; {each.trials} pairs of trials, {each.rounds} rounds each")
    if each.overspent and each.budget is not None:
        spent, budget = apart(each.paid, each.budget)
        print(f"  The ledger itself costs epsilon {spent}, more than the budget of {budget}.")
    if each.strategy.copies and each.ledger < each.paid:
        ledger, paid = apart(each.ledger, each.paid)
        print(
            f"{name}: the organisation did not notice an older copy. Its ledger then says {ledger} where {paid} "
            "was spent."
        )
    if each.times.epsilon > each.paid:
        print(f"{name}: times alone reveal epsilon {found(each.times.epsilon)}; no promise covers times.")


def _percent(share: float) -> str:
    """Rounded down: what is not certain never reads as 100 %."""
    return f"{math.floor(1000.0 * share + 1e-9) / 10.0:g} %"
