"""Whether persons can vote, and whether their votes go into a secure sum, as far as a plan says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from silograph.core import wording
from silograph.core.errors import InputError

if TYPE_CHECKING:
    from silograph.families.graphs.plan import Data, Privacy


def no_votes(private: Privacy | None, data: Data) -> tuple[str, str, str] | None:
    """What keeps persons from voting: expected, found, what to do."""
    if private is None:
        return "a privacy budget for votes", "found none", "Add an epsilon, or take 'likelihood'."
    if data.unit_column is None:
        todo = f"Name the column that says whose a signal is: {wording.option('unit_column', 'COLUMN')}."
        return "persons, who vote, for votes", "found single signals", todo
    if private.mechanism != "gaussian":
        return "gaussian noise for votes", f"found {private.mechanism}", "Leave the mechanism out."
    if private.mode not in (None, "one-release", "secure-sum"):
        return "one release or a secure sum for votes", f"found the mode {private.mode}", "Leave the mode out."
    if private.clip is not None:
        return "no clip for votes, which are 0 or 1", f"found {private.clip:g}", "Leave it out."
    if data.candidates is not None:
        return "all pairs of nodes for votes", "found a list of candidates", "Leave it out."
    return None


def check_groups(data: Data, learner: str | None) -> None:
    """Groups of persons are compared by their votes alone."""
    where = wording.setting("group_column")
    if data.group_column is None:
        if data.groups:
            raise InputError(where, "the column that says which group a person is in", "found groups and no column")
        return
    if data.unit_column is None or learner not in (None, "votes"):
        column = wording.option("unit_column", "COLUMN")
        todo = f"Name the column that says whose a signal is, and no other learner: {column}."
        raise InputError(where, "persons who vote", "found none", todo)
    if len(set(data.groups)) != 2 or len(data.groups) != 2:
        todo = f"Name both as they stand in the column: {wording.option('groups', ['A', 'B'])}."
        raise InputError(wording.setting("groups"), "two groups", f"found {len(set(data.groups))}", todo)


def adds_up(private: Privacy, sites: int) -> bool:
    """Whether votes go into a secure sum: as the plan says, or where there are sites enough."""
    from silograph.privacy.masking import Masks  # its ciphers take a while to import

    return private.mode == "secure-sum" or (private.mode is None and sites >= Masks().minimum)
