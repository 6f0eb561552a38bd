"""The documentation builds without a warning, from this machine alone, and leaves nothing out."""

import ast
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from typer.main import get_command

import silograph
from silograph.cli import app

pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
pytest.importorskip("material", reason="the extra `docs` is not installed")
pytest.importorskip("matplotlib", reason="the extra `docs` is not installed")
pytest.importorskip("torch", reason="the gallery needs the extra `neural`")

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize(
    "page, package", [("kernels", "kernels"), ("privacy", "privacy"), ("attacks", "privacy/attacks")]
)
def test_every_public_function_and_class_of_a_package_is_in_the_reference(page, package, site):
    text = (site / "api" / f"{page}.html").read_text(encoding="utf-8")
    modules = [path for path in (ROOT / "src" / "silograph" / package).glob("*.py") if path.stem != "__init__"]
    assert len(modules) > 5
    for path in modules:
        name = f"silograph.{package.replace('/', '.')}.{path.stem}"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        public = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"]
        told = [node.name for node in public if ast.get_docstring(node)]
        assert not [each for each in told if f'id="{name}.{each}"' not in text], name


def test_the_gallery_has_a_picture_for_every_script(site):
    scripts = [path.stem for path in (ROOT / "examples" / "gallery").glob("*.py")]
    assert len(scripts) == 5
    text = (site / "gallery.html").read_text(encoding="utf-8")
    for name in scripts:
        assert f'src="gallery/{name}.svg"' in text
        assert "</svg>" in (site / "gallery" / f"{name}.svg").read_text(encoding="utf-8")
