"""Who may see what leaves a silo."""

from __future__ import annotations

from silograph.core.errors import InputError

#: Who sees a message, or anything computed from it.
SERVER, OTHER_SERVERS, EVERYBODY = "server", "other servers", "own server and everybody else"
#: The own server alone: what it passes on goes through its gate again, with its own row.
OWN_SERVER = "own server"

#: Who may look at a run, and the rows that are hidden from each. An agent's link to its own server is encrypted.
OBSERVERS: dict[str, frozenset[str]] = {
    SERVER: frozenset(),
    OWN_SERVER: frozenset(),
    **dict.fromkeys(("neighbour", "another agent", "other sites", "wire", "public"), frozenset({OWN_SERVER})),
}


def hidden_from(observer: str) -> frozenset[str]:
    if observer not in OBSERVERS:
        raise InputError("observer", ", ".join(OBSERVERS), f"found {observer!r}")
    return OBSERVERS[observer]
