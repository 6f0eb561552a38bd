"""The documentation builds without a warning, from this machine alone, and leaves nothing out."""

import inspect
import os
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from typer.main import get_command

import silograph
from chromium import faults
from silograph.cli import app

pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
pytest.importorskip("material", reason="the extra `docs` is not installed")
pytest.importorskip("matplotlib", reason="the extra `docs` is not installed")
pytest.importorskip("torch", reason="the gallery needs the extra `neural`")

ROOT = Path(__file__).parents[2]
#: Pages of names, and how many there are at least.
PAGES = {"silograph": 40, "run": 40, "kernels": 35, "privacy": 50, "attacks": 24}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as `make docs` does, elsewhere."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """What a page makes a browser fetch: scripts, styles, pictures, frames. Links that one follows are not."""

    def __init__(self):
        super().__init__()
        self.urls = []

    def handle_starttag(self, tag, attrs):
        names = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "object", "embed", "link"):
            self.urls += [names[name] for name in ("src", "href", "data", "srcset") if names.get(name)]


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.urls
        assert not [url for url in loads.urls if re.match(r"(https?:)?//", url)], page
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_a_page_that_loads_something_would_be_seen():
    loads = Loads()
    loads.feed('<a href="https://a.example"></a><script src="https://b.example/x.js"></script>')
    assert loads.urls == ["https://b.example/x.js"]


def test_search_knows_every_page_and_works_from_disk(site):
    assert (site / "search" / "search_index.js").stat().st_size > 100_000
    assert (site / "assets" / "iframe-worker.js").exists()


def test_every_command_and_option_is_on_the_page_of_commands(site):
    text = (site / "cli.html").read_text(encoding="utf-8")
    group = get_command(app)
    assert isinstance(group, click.Group)
    assert len(group.commands) > 10
    for name, command in group.commands.items():
        assert f'id="{name}"' in text
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert f"<code>{option.opts[-1]}</code>" in text, (name, option.name)


def test_every_public_name_is_in_the_reference(site):
    text = (site / "api" / "silograph.html").read_text(encoding="utf-8")
    for name in silograph.__all__:
        if inspect.isclass(getattr(silograph, name)):
            assert re.search(rf'id="silograph\.[\w.]+\.{name}"', text), name


@pytest.mark.parametrize("page", PAGES)
def test_every_name_that_a_page_lists_is_on_it(page, site):
    """mkdocstrings leaves out, without a word, a name that is not there or has no docstring."""
    text = (site / "api" / f"{page}.html").read_text(encoding="utf-8")
    source = (ROOT / "docs" / "api" / f"{page}.md").read_text(encoding="utf-8")
    listed = [
        f"{block.split()[0]}.{name}"
        for block in re.split(r"^::: ", source, flags=re.MULTILINE)[1:]
        for names in re.findall(r"members: \[(.*?)\]", block, re.DOTALL)
        for name in re.findall(r"\w+", names)
    ]
    assert len(listed) > 20
    assert not [address for address in listed if f'id="{address}"' not in text]


def shown(page):
    """Every function, class and method on a page: its address, itself, and the docstring of a method's class."""
    for address in re.findall(r'<h\d id="(silograph\.[\w.]+)"', page):
        owner, _, name = address.rpartition(".")
        try:
            kept = pkgutil.resolve_name(owner)
            each = inspect.getattr_static(kept, name)
        except (ImportError, AttributeError):
            continue  # an attribute that only instances have
        each = inspect.unwrap(getattr(each, "__func__", each))
        if inspect.isclass(each) or inspect.isroutine(each) or isinstance(each, property):
            yield address, each, (kept.__doc__ or "") if inspect.isclass(kept) else ""


@pytest.mark.parametrize("page", PAGES)
def test_whatever_is_shown_has_an_example(page, site):
    """Its own, or as a method one in its class. tests/docs/test_docstrings.py runs them."""
    found = list(shown((site / "api" / f"{page}.html").read_text(encoding="utf-8")))
    assert len(found) > PAGES[page]
    without = [
        address
        for address, each, of_class in found
        if ">>> " not in each.__doc__ and not re.search(rf"(>>>|\.\.\.) .*\b{address.rpartition('.')[2]}\b", of_class)
    ]
    assert not without


@pytest.mark.parametrize("page", PAGES)
def test_every_parameter_is_explained(page, site):
    """In a line of its own if there is a list of them, else in words of the function, or as a method's of its class."""
    missing = {}
    for address, each, of_class in shown((site / "api" / f"{page}.html").read_text(encoding="utf-8")):
        listed = "Parameters\n" in (each.__doc__ or "")
        if callable(each) and (listed or inspect.isroutine(each)):
            words = re.sub(r"^ *(>>>|\.\.\.) .*$", "", f"{each.__doc__}\n{of_class}", flags=re.MULTILINE)
            found = r"(?m)^ *{} : " if listed else r"\b{}(?![a-z])"
            names = [name for name in inspect.signature(each).parameters if name not in ("self", "cls")]
            missing[address] = [n for n in names if n[0] != "_" and not re.search(found.format(n), words)]
    assert {address: names for address, names in missing.items() if names} == {}


def test_the_gallery_has_a_picture_for_every_script(site):
    scripts = [path.stem for path in (ROOT / "examples" / "gallery").glob("*.py")]
    assert len(scripts) == 5
    text = (site / "gallery.html").read_text(encoding="utf-8")
    for name in scripts:
        assert f'src="gallery/{name}.svg"' in text
        assert "</svg>" in (site / "gallery" / f"{name}.svg").read_text(encoding="utf-8")


def test_the_page_of_benchmarks_shows_what_was_measured(site):
    text = (site / "benchmarks.html").read_text(encoding="utf-8")
    for page in ("solver", "gaps", "choosing", "tables", "private-graphs", "person-votes"):
        assert f'Measured, as <a href="{page}.html">' in text
    assert text.count("<table") >= 9


# ---- in a browser ----------------------------------------------------------------------------------------------------

#: One page of every kind; `make test-site` looks at all of them.
LOOKED_AT = ("index", "analyst", "benchmarks", "cli", "api/silograph")


@pytest.fixture
def visit(site, browser):
    """Opens a page as a reader does, from disk; what it complains about is kept."""
    contexts = []

    def go(name, width=1200, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
        page.goto((site / f"{name}.html").as_uri())
        return page

    yield go
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width, scheme", [(1200, "light"), (375, "dark")])
def test_pages_can_be_read_by_everybody(width, scheme, site, visit):
    every = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    every.remove("404")  # which a server shows, with addresses from its root
    found = {}
    for name in sorted(every) if os.environ.get("SILOGRAPH_SITE") == "full" else LOOKED_AT:
        page = visit(name, width, scheme)
        found[name] = [*page.complaints]  # before axe asks for style sheets, which a page on disk may not
        found[name] += faults(page)
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found[name].append("wider than the screen")
        page.context.close()
    assert {name: told for name, told in found.items() if told} == {}


@pytest.mark.parametrize(
    "page, block, copied",
    [
        ("tutorial", "silograph sample sites", "silograph sample sites\nhead -n 3 sites/site_hill.csv | cut -c 1-53\n"),
        ("budget", "hypot(", "from math import hypot\nfrom silograph"),
    ],
)
def test_copying_a_block_copies_commands_alone(page, block, copied, visit):
    opened = visit(page)
    shown = opened.locator(".highlight").filter(has_text=block).first
    shown.hover()
    shown.locator("button.md-clipboard, .md-code__button[title*=Copy]").first.click()
    opened.evaluate("document.body.insertAdjacentHTML('beforeend', '<textarea id=pasted></textarea>')")
    opened.locator("#pasted").focus()
    opened.keyboard.press("Control+V")
    text = opened.locator("#pasted").input_value()
    assert text.startswith(copied)
    assert not re.search(r"^(\$|>>>|\.\.\.|sites/|1\.45)", text, re.MULTILINE)


def test_search_finds_how_to_install_the_licence_and_how_to_cite(visit):
    opened = visit("index")
    box = opened.locator("input[data-md-component=search-query]")
    for asked, answer in (("install", "#install"), ("licence", "#licence-license"), ("cite", "#how-to-cite")):
        box.fill("")
        box.press_sequentially(asked)
        opened.locator(f'.md-search-result__link[href*="install.html{answer}"]').first.wait_for(state="attached")
