"""The figures of README and docs/evidence.md are those of the committed tables, and there are no others in the README's summary."""

import re
from pathlib import Path

import pytest

from benchmarks.figures import (
    EVIDENCE,
    HEADING,
    README,
    ROOT,
    Figure,
    look_up,
    read_figures,
    refreshed,
    section,
)

TEXT = README.read_text(encoding="utf-8")

PAGE = """# A page
## keep_flops = 0.5
| contender | accuracy | FLOPs |
|---|---|---|
| ours | 91.20; of older code | 0.499 |
| dense | 91.50 | 1.000 |

## keep_flops = 0.3
| contender | accuracy | FLOPs |
|---|---|---|
| ours | 90.10 | 0.300 |
"""
SUMMARY = """# A library
## Figures
| what | figure | cell |
|---|---|---|
| ours | 91.20 | [page](page.md) `keep_flops = 0.5` `ours` `accuracy` |
| dense | 91.50 | [page](page.md) `dense` `accuracy` |

## More
| 1 |
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path


SHOWN = [
    (page, figure) for page in (README, EVIDENCE) for figure in read_figures(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(
    ("page", "figure"), SHOWN, ids=[f"{page.name}-{figure.words}" for page, figure in SHOWN]
)
def test_the_pages_agree_with_the_tables(page: Path, figure: Figure):
    assert (page.parent / figure.page).resolve().is_relative_to(ROOT / "benchmarks" / "results")
    assert figure.value == look_up(figure, page.parent), (
        f"{figure.page} has changed: python -m benchmarks.figures writes {page.name} again"
    )


def test_every_committed_table_is_read():
    shown = {(page.parent / figure.page).name for page, figure in SHOWN}
    assert shown == {sheet.name for sheet in (ROOT / "benchmarks" / "results").glob("*.md")}


def test_the_summary_is_short_and_stands_first():
    assert 1 <= len(section(TEXT)) <= 24
    assert re.findall(r"^## .*$", TEXT, re.MULTILINE)[0] == HEADING


def test_no_number_stands_beside_the_tables():
    prose = [line for line in section(TEXT) if not line.startswith("|")]
    words = [figure.words for figure in read_figures(TEXT)]
    # Names that have a number in them (the version of a peer, say) belong into the tables' headings.
    assert [line for line in [*prose, *words] if re.search(r"\d", line)] == []


def test_a_wrong_figure_is_found_and_mended(root: Path):
    assert [look_up(figure, root) for figure in read_figures(SUMMARY)] == ["91.20", "91.50"]
    wrong = SUMMARY.replace("91.20", "99.00").replace("| dense | 91.50", "| dense | 0")
    assert [figure.value == look_up(figure, root) for figure in read_figures(wrong)] == [False, False]
    assert refreshed(wrong, root) == SUMMARY


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(page.md) `dense`", "(other.md) `dense`", "there is no other.md"),
        ("`dense` `accuracy`", "`nobody` `accuracy`", "0 cells"),
        ("`dense` `accuracy`", "`dense` `loss`", "0 cells"),
        ("`keep_flops = 0.5` `ours`", "`ours`", "2 cells"),
        ("[page](page.md) `dense` `accuracy`", "measured by hand", "names no cell"),
    ],
)
def test_a_figure_without_one_cell_is_refused(root: Path, old: str, new: str, message: str):
    with pytest.raises(ValueError, match=message):
        refreshed(SUMMARY.replace(old, new), root)
