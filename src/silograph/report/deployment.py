"""The page in a deployment's folder: what to type, what leaves an organisation's machine, what it costs, what was
agreed.

A pure function of deployment.json and of what the plan will cost: no organisation learns from it what the others do
not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from silograph import families
from silograph.core.toml import parse_toml
from silograph.core.types import Json
from silograph.report.page import render
from silograph.report.words import alike, bound, first_seen, listed, number

_OBSERVERS = {
    "server": "the server’s operator",
    "own server": "its own server, which the operator runs",
    "neighbour": "servers of other regions",
    "another agent": "agents of other organisations",
    "other sites": "the other organisations",
    "wire": "whoever reads the network",
    "public": "whoever gets the results",
}


@dataclass(frozen=True)
class Leaving:
    """One thing that an organisation sends, with its size in words; `open`: nothing protects it."""

    what: str
    size: str
    when: str
    how: str
    open: bool = False


def page(told: Json, digest: str, forecast: Json, organisation: str | None, region: str | None = None) -> str:
    """The page of one organisation, or of the server's operator (None), from the deployment as JSON and its
    forecast. With a `region` it is about that region's server."""
    plan = parse_toml(told["plan"], "deployment, plan")
    kind = families.part(plan["method"]["name"], "deployment_words", DeploymentWordsPart).SPOKEN(plan, told["facts"])
    kind.releases = forecast.get("releases", kind.releases)
    facts: list[Json] = told["facts"]["organisations"]
    if region is not None:
        facts = [each for each in facts if each.get("region", each["name"]) == region]
    of = organisation if region is None else region  # guarantees are about regions, their cells, or their agents
    guarantees = [row for row in forecast["guarantees"] if of is None or _is_of(of, row["site"])]
    organisations = [each["name"] for each in facts]
    return render(
        "deployment.html.j2",
        organisation=organisation,
        folder=organisation or region or "server",
        region=region,
        regions=told.get("regions", {}),
        organisations=organisations,
        held=[each for each in facts if organisation in (None, each["name"])],
        terms=told["terms"] if region is None else {**told["terms"], "address": told["regions"][region]},
        run=told["run"],
        after=told.get("after"),
        digest=digest,
        seed=plan.get("seed"),
        plan=told["plan"],
        files=sorted(told["files"]),
        extras=kind.extras,
        command=_Commands(organisation or region or "server", _tables(plan, organisations).get(organisation or "")),
        kind=kind,
        verdict=_verdict(kind, guarantees),
        guarantees=_grouped(guarantees, len({row["site"] for row in forecast["guarantees"]})),
        effective=[row for row in forecast["sites"] if "effective_rows" in row and organisation in (None, row["site"])],
        notes=forecast["notes"],
    )


def own_page(plan: Json, facts: Json, told: Json) -> str:
    """The page of an organisation whose run is over, from its own.json."""
    kind = families.part(plan["method"]["name"], "deployment_words", DeploymentWordsPart).SPOKEN(plan, facts)
    guarantees = told["guarantees"]
    return render(
        "own.html.j2",
        **{name: told[name] for name in ("organisation", "deployment", "rounds", "releases", "silos")},
        arrays=sorted(told["arrays"].items()),
        verdict=_verdict(kind, guarantees),
        guarantees=_grouped(guarantees, len({row["site"] for row in guarantees})),
    )


def _is_of(organisation: str, site: str) -> bool:
    """Whether a guarantee is about this organisation: itself, its clients, or its cells."""
    return site == organisation or site.startswith(f"{organisation}/")


def _tables(plan: Json, organisations: Iterable[str]) -> dict[str, str]:
    """The table of every organisation, as the plan calls it: an organisation has its table's name, without what says
    the format."""
    longest_first = sorted(organisations, key=len, reverse=True)
    named = ((next((p for p in longest_first if name.startswith(f"{p}.")), ""), name) for name in plan["data"]["files"])
    return dict(named)


@dataclass(frozen=True)
class _Commands:
    """What is typed where the folder lies; names stand as a shell needs them."""

    folder: str
    table: str | None

    def __call__(self, verb: str, *more: str) -> str:
        return shlex.join(["silograph", verb, self.folder, *more])

    @property
    def data(self) -> tuple[str, str]:
        return "--data", self.table or "TABLE"

    def path(self, *parts: str) -> str:
        """A path inside the folder."""
        return shlex.quote("/".join([self.folder, *parts]))


# ---- what is learned, and what that takes ----------------------------------------------------------------------------


class Spoken:
    """What a plan says, in words for those who must agree to it; every family has its own."""

    #: What one silo is called.
    one = "organisation"
    #: Extras of silograph that an organisation has to install.
    extras = "deploy"
    #: How often a silo releases something, where that is known beforehand.
    releases = 1
    #: Whether records have labels whose list is public.
    labels = False

    def __init__(self, plan: Json, facts: Json) -> None:
        self.facts = facts
        self.method: Json = plan["method"]
        self.privacy: Json = plan.get("privacy", {})
        self.private = bool(self.privacy)
        self.seeded = self.private and "seed" in plan
        #: What neighbours differ in, where they do not differ in a record.
        self.persons = "unit_column" in plan["data"]

    @property
    def goal(self) -> str:
        """What is learned."""
        raise NotImplementedError

    @property
    def comes_back(self) -> str:
        """What the server tells organisations in return."""
        raise NotImplementedError

    def sent(self) -> Iterator[Leaving]:
        """What leaves an organisation's machine, beside the rows of its ledger."""
        raise NotImplementedError

    @property
    def masked(self) -> bool:
        return bool(self.method.get("masks", "none") != "none")

    @property
    def protects_silos(self) -> bool:
        """Whether a silo with all its records is protected, rather than a record."""
        return False

    @property
    def agents(self) -> bool:
        """Whether an organisation's table is of several silos."""
        return self.one != "organisation"

    @property
    def trusting(self) -> bool:
        """Whether noise is the own server's affair."""
        return self.protects_silos and not self.masked

    @property
    def enforced(self) -> bool:
        """Whether an organisation's own machine refuses what would cost more than the budget."""
        return self.private and not self.trusting

    @property
    def smallest_sum(self) -> int:
        return int(self.method.get("minimum", _FEWEST_IN_A_SUM)) if self.masked else 1

    @property
    def rounds(self) -> str:
        return number(self.method.get("rounds", 50))  # what is left out is the papers'

    @property
    def protected_unit(self) -> str:
        """What is protected."""
        return f"one {self.one}, with all its records" if self.protects_silos else "one record"

    @property
    def budget(self) -> str:
        """What the plan allows in all."""
        if not self.private:
            return "none"
        delta = 0.0 if self.privacy.get("mechanism") == "laplace" else self.privacy.get("delta", 1e-6)
        return f"ε = {bound(self.privacy['epsilon'])}" + (f", δ = {bound(delta)}" if delta else "")

    @property
    def counts_are_public(self) -> bool:
        return not self.protects_silos

    @property
    def kept(self) -> str:
        """What an organisation has for itself when the run is over."""
        return ""

    @property
    def hands_over(self) -> bool:
        """Whether the run can only end when all are there, with their results."""
        return False

    @property
    def leaving(self) -> list[Leaving]:
        checksum = "no values; checksums under a key that never leaves" if self.private else "a checksum of each value"
        ledger = Leaving("the new rows of the organisation’s ledger", "a few words each", "with every answer", checksum)
        return [*self.sent(), ledger]

    @property
    def each_round(self) -> str:
        return "in rounds for which it is sampled" if "sample" in self.method else "in every round"

    def of_masks(self, when: str = "in every round") -> list[Leaving]:
        what = "keys of the round, sealed shares of them, signatures"
        told = "sealed for the other agents, or useless alone"
        return [Leaving(what, "some for each other agent", when, told)] if self.masked else []


class OfServers(Spoken):
    """Shared by families in which a server adds up what its silos send; `group` is whose sum it is."""

    group: str

    @property
    def features(self) -> str:
        return f"{number(len(self.facts['columns']) + self.method.get('intercept', True))} numbers of each {self.one}"

    @property
    def handed_over(self) -> tuple[str, bool]:
        """How a vector goes to the own server, and whether it lies open there."""
        sum_of = f"only under masks: the server learns the sum over at least {self.smallest_sum} {self.one}s of a"
        if self.masked and self.private:
            return f"{sum_of} {self.group}, with noise that they add themselves", False
        if self.masked:
            return f"{sum_of} {self.group}, as it is: no noise", True
        if self.private:
            return "clipped, and in the clear for its own server; others see it only with noise", True
        return BARE, True


class DeploymentWordsPart(Protocol):
    """A family's part `deployment_words`."""

    SPOKEN: type[Spoken]


_FEWEST_IN_A_SUM = 3  # organisations, where a plan says nothing
BARE = "as it is: no protection"
NOISY = "with noise, for a share of the budget"


# ---- what it costs ---------------------------------------------------------------------------------------------------


def _verdict(kind: Spoken, guarantees: Sequence[Json]) -> tuple[str, str, str]:
    """A class of the style sheet, a label, and a sentence or two."""
    finite = [row for row in guarantees if row["epsilon"] != "infinity"]
    if not finite:
        bare = "The plan has no privacy budget: ε is infinite against everybody."
        masked = f" Masks hide from the server what each {kind.one} sends, but not the sums."
        return "none", "No protection", bare + (masked if kind.masked else "")
    epsilon = bound(max(row["epsilon"] for row in finite))
    delta = bound(max(row["delta"] or 0.0 for row in finite))
    promise = f"at most ε = {epsilon} at δ = {delta} over the whole run about {kind.protected_unit}"
    if kind.seeded:
        return (
            "none",
            "Rehearsal: no protection",
            f"The noise comes from the seed in the plan, which everybody with deployment.json knows: whoever knows it "
            f"can remove the noise. Without a seed the same plan would reveal {promise}. Do not use real records.",
        )
    if len(finite) < len(guarantees):
        bare = listed(_people(row["observer"] for row in guarantees if row["epsilon"] == "infinity"))
        return "partial", "Private in part", f"Against {bare} there is no protection. Others learn {promise}."
    return "full", "Private", f"Whoever sees what leaves learns {promise}."


def _people(observers: Iterable[str]) -> list[str]:
    return [_OBSERVERS.get(name, name) for name in first_seen(observers)]


def _grouped(guarantees: Sequence[Json], everybody: int) -> list[Json]:
    """One row for each cost, with whom it is about and against whom it holds."""
    rows = [(row["site"], row["observer"], _cost_text(row)) for row in guarantees]
    return [
        {
            "sites": f"all {everybody}" if len(names) == everybody > 1 else listed(names, most=6),
            "cost": spent,
            "against": listed(_people(against)),
        }
        for spent, names, against in alike(rows)
    ]


def _cost_text(row: Json) -> str:
    if row["epsilon"] == "infinity":
        return ""
    return f"ε = {bound(row['epsilon'])}" + (f" at δ = {bound(row['delta'])}" if row["delta"] else "")
