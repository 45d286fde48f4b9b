"""The site has every page of docs/ and what they link to, and its check sees what would be loaded."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from docs.making import site

ROOT = Path(__file__).parents[2]
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(part: object) -> list[str]:
    if isinstance(part, str):
        return [part]
    inner = part.values() if isinstance(part, dict) else part
    return [page for one in inner for page in pages(one)]


def test_every_page_is_in_the_navigation_once():
    assert sorted(pages(SETTINGS["nav"])) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_build_is_strict_and_checks_every_kind_of_link():
    assert SETTINGS["strict"] is True
    assert set(SETTINGS["validation"]["links"]) == {
        "not_found",
        "anchors",
        "absolute_links",
        "unrecognized_links",
    }
    kinds = {word for part in SETTINGS["validation"].values() for word in part.values()}
    assert kinds == {"warn"}
    assert SETTINGS["theme"]["font"] is False


def test_files_outside_docs_come_with_what_they_link_to():
    found = site.linked_files()
    assert {"benchmarks/results/accuracy.md", "benchmarks/results/accuracy/accuracy.png"} <= found
    assert [name for name in found if not (ROOT / name).exists()] == []
    assert [name for name in found if name.startswith("docs/")] == []


def test_links_out_of_docs_are_turned_to_the_copies():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="evidence.md"))
    text = "[sheet](../benchmarks/results/cost.md#mobilenetv2), [page](training.md)"
    assert site.on_page_markdown(text, page=page) == (
        "[sheet](repository/benchmarks/results/cost.md#mobilenetv2), [page](training.md)"
    )
    copy = SimpleNamespace(file=SimpleNamespace(src_uri="repository/benchmarks/results/cost.md"))
    assert site.on_page_markdown(text, page=copy) == text


@pytest.mark.parametrize(
    "source",
    [
        '<script src="https://unpkg.com/x.js"></script>',
        "<img src=//example.com/a.png>",
        '<link rel="stylesheet" href="https://fonts.googleapis.com/css">',
        '<link href="https://fonts.gstatic.com" rel="preconnect">',
        "<style>@import 'https://example.com/a.css'</style>",
        "<style>a { background: url(https://example.com/a.png) }</style>",
    ],
)
def test_what_a_page_would_load_is_found(tmp_path: Path, source: str):
    (tmp_path / "index.html").write_text(f"<p>text</p>{source}")
    assert len(site.loads_from_network(tmp_path)) == 1


def test_links_and_own_files_are_no_loads(tmp_path: Path):
    (tmp_path / "index.html").write_text(
        '<a href="https://example.com">x</a><script src="assets/x.js"></script><img src="a.png">'
        '<link rel="canonical" href="https://example.com/"><link rel="stylesheet" href="assets/a.css">'
    )
    assert site.loads_from_network(tmp_path) == []
