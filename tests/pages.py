"""What the tests of pages share: hostile names, made-up guarantees, and a reader of HTML."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

NASTY = "</title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
VOID = {"meta", "br", "img", "link", "hr", "input"}


def guarantee(site: str, observer: str, epsilon: float | str, **more: Any) -> dict[str, Any]:
    finite = epsilon != "infinity"
    return {
        "site": site,
        "observer": observer,
        "epsilon": epsilon,
        "delta": 1e-5 if finite else None,
        "accountant": "analytic Gaussian" if finite else "none",
        "claim": None,
        "rehearsal": False,
    } | more


def change(folder: Path, **changes: Any) -> None:
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes), encoding="utf-8")


def everywhere_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from everywhere_in(value[key])


class Page(HTMLParser):
    """Checks that tags close in order, and collects what the tests ask about."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words: list[str] = []
        #: What stands in script elements: their type, which is None where they run, and their text.
        self.scripts: list[tuple[str | None, str]] = []
        self.feed(html)
        self.close()
        assert self.open == [], "tags left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, key, value) for key, value in attrs]
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, key, value) for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            kind, text = self.scripts[-1]
            self.scripts[-1] = kind, text + data
        elif "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def only_own_scripts(page: Page) -> None:
    """At most one script runs, which the page's policy names by its digest; everything else is data."""
    policy = next(value for tag, key, value in page.attributes if tag == "meta" and key == "content" and "src" in value)
    allowed = re.findall(r"script-src ([^;]*);", policy)
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for kind, text in page.scripts if not kind
    ]
    assert allowed == [f"'sha256-{digests[0]}'" if digests else "'none'"]
    assert len(digests) < 2
    for kind, text in page.scripts:
        if kind is not None:
            assert kind == "application/json"
            json.loads(text)
    assert not any(key.startswith("on") for _, key, _ in page.attributes)
    assert page.tags["img"] == 0


def refuse_requests(html: str) -> None:
    """A page that asks the network for nothing."""
    page = Page(html)
    only_own_scripts(page)
    policy = next(value for tag, key, value in page.attributes if tag == "meta" and key == "content" and "src" in value)
    assert "default-src 'none'" in policy
    assert not page.tags.keys() & {"link", "img", "iframe", "object", "embed", "form", "base"}
    assert all(value.startswith("#") for _, key, value in page.attributes if key in ("href", "xlink:href", "action"))
    assert not any(key in ("src", "srcset", "background", "poster") for _, key, _ in page.attributes)
    assert not re.search(r"https?://|url\(|@import", html)


def harmless(html: str, clean: str) -> None:
    """Nasty names are shown as they are, and make nothing of the page that a clean one has not."""
    page = Page(html)
    only_own_scripts(page)
    assert page.tags["section"] == Page(clean).tags["section"]
    assert NASTY in page.text
    assert "\u202e" not in html
    assert html.encode("utf-8")


def table(html: str, name: str) -> list[list[str]]:
    """The rows of one table, as the words of their cells."""
    body = html.split(f'aria-label="{name}" tabindex="0"><table', 1)[1].split("</table>", 1)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, flags=re.DOTALL)
    return [[Page(cell).text for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


def promise(html: str) -> dict[str, str]:
    """What the box on privacy at the top of a page promises, by the word that stands before it."""
    header = html[: html.index("<main>")]
    parts = re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", header, flags=re.DOTALL)
    return {Page(word).text: Page(said).text for word, said in parts}
