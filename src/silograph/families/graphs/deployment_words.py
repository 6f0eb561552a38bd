"""What leaves an organisation that takes part in learning graphs, in words."""

from __future__ import annotations

from collections.abc import Iterator

from silograph.core.types import Json
from silograph.kernels.column_scale import OCTAVES, PLACES
from silograph.report.deployment import BARE, NOISY, Leaving, Spoken
from silograph.report.words import counted, number


class SpokenOfGraphs(Spoken):
    def __init__(self, plan: Json, facts: Json) -> None:
        super().__init__(plan, facts)
        self.scale = plan["data"].get("scale")

    @property
    def masked(self) -> bool:
        return self.privacy.get("mode") == "secure-sum" or self.method.get("reveal") == "sum"

    @property
    def _likelihood(self) -> bool:
        """Whether second moments are sent once, as they are, or their secure sum."""
        return not self.private and self.method.get("learner") == "likelihood"  # a deployment's plan names it

    @property
    def _votes(self) -> bool:
        return bool(self.method.get("learner") == "votes")

    @property
    def _once(self) -> bool:
        return self._likelihood or (self.private and self.privacy.get("mode") != "per-round")

    @property
    def _scaled(self) -> bool:
        """Whether private means and spreads of columns come first."""
        return self._once and self.private and self.releases > 1

    @property
    def _with_mean(self) -> bool:
        """Whether rows are scaled, so that a site's mean need not be 0 and is released beside its moment."""
        public = self.scale not in (None, "none", "private")
        return self._scaled or (public and self._once and self.private and not self._votes)

    @property
    def goal(self) -> str:
        whose = "all organisations together" if self.masked or self._votes else "every organisation, and one for all"
        return f"a graph of {counted(len(self.facts['columns']), 'node')} for {whose}"

    @property
    def rounds(self) -> str:
        if self._scaled:
            return "three releases, one after the other"
        if self._once:
            return "one exchange" if self._likelihood else "one release"
        if self.method["solver"] == "exact":
            return f"until solved, at most {number(self.method.get('rounds', 2000))}"
        return super().rounds

    @property
    def protected_unit(self) -> str:
        return "one person, with all signals of theirs" if self.persons else "one signal (a row of a table)"

    @property
    def kept(self) -> str:
        return "" if self._once else "your graph"

    @property
    def hands_over(self) -> bool:
        return not self._once

    @property
    def comes_back(self) -> str:
        if self._scaled:
            return "private means and spreads of columns; the operator hands out the results"
        if self._once:
            return "nothing: the operator hands out the results"
        return "the consensus graph and the parameters of the round"

    def sent(self) -> Iterator[Leaving]:
        nodes = len(self.facts["columns"])
        pairs = f"{number(nodes * (nodes - 1) // 2)} numbers"
        moment = "how strongly nodes vary together (the clipped second moment)"
        sent = pairs
        if self._votes:
            moment = "how many persons vote for each pair of nodes, by the strongest relations in their own rows"
        elif self._with_mean:
            moment = "how strongly nodes vary together, and their means (the clipped second moment with a constant)"
            sent = f"{number((nodes + 1) * (nodes + 2) // 2)} numbers"
        if self.masked and not self.private:
            what = "how strongly nodes vary together (correlations, times the number of rows)"
            told = (
                f"only under masks: the server learns the sum over at least {self.smallest_sum} organisations, as it is"
            )
            yield Leaving(what, pairs, "once", f"{told}: no noise", True)
            yield from self.of_masks("once")
        elif self._likelihood:
            parts = " for each of several parts of the rows" if self.method.get("choose_by") == "held-out" else ""
            size = f"{number(nodes * (nodes + 1) // 2)} numbers{parts}"
            what = "how strongly nodes vary together (second moments of the rows around their mean)"
            yield Leaving(what, size, "once; if asked again, it sends the same", BARE, True)
        elif self.masked:
            told = (
                f"only under masks: the server learns the sum over at least {self.smallest_sum} organisations, "
                "with noise"
            )
            for what, size in self._of_scale():
                yield Leaving(what, size, "once", f"{told} that they add themselves")
            yield Leaving(moment, sent, "once", f"{told} that they add themselves")
            yield from self.of_masks("once")
        elif self._once:
            for what, size in (*self._of_scale(), (moment, sent)):
                yield Leaving(what, size, "once; if asked again, it sends the same", "with noise, for the budget")
        elif self.private:
            step = "the graph after this round’s step"
            yield Leaving(step, pairs, "in every round, the last again at the end", NOISY)
        else:
            yield Leaving("the organisation’s graph, or its pull at the consensus", pairs, self.each_round, BARE, True)
            yield Leaving("how well the graph fits, and how dense it is", "7 numbers", self.each_round, BARE, True)
            yield Leaving("the organisation’s graph as the result", pairs, "once, at the end", BARE, True)
            yield Leaving("how smooth its signals are on it", "1 number", "once, at the end", BARE, True)

    def _of_scale(self) -> Iterator[tuple[str, str]]:
        nodes = len(self.facts["columns"])
        if self._scaled:
            yield "how far pairs of rows differ (counts by powers of two)", f"{number(nodes * OCTAVES)} numbers"
            yield "where rows are (counts by cells of two spreads)", f"{number(nodes * PLACES)} numbers"


SPOKEN = SpokenOfGraphs
