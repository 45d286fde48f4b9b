"""The documents say what is true: their Python blocks run, their commands exist."""

import ast
import re
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import trainonce
from trainonce.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
QUOTING = {"coming-from.md", "reference.md"}
"""Pages with blocks of other libraries or bare signatures, fenced as `py`: these are not run."""


def blocks(text: str, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a page in one language, each with the line it starts on."""
    fence = re.compile(rf"^```{language}[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, found.start(1)), found.group(1)) for found in fence.finditer(text)]


def run_blocks(page: Path) -> int:
    """Run the Python blocks of a page one after the other in one namespace; how many there were."""
    namespace = {"__name__": "__main__"}
    found = blocks(page.read_text(encoding="utf-8"), "python")
    for first_line, source in found:
        # The empty lines in front make a traceback point into the page.
        exec(compile("\n" * first_line + source, str(page), "exec"), namespace)
    return len(found)


def commands(text: str, program: str) -> set[str]:
    """The first word after `$ program` on every line of a page's console blocks."""
    lines = [line for _, block in blocks(text, "console") for line in block.splitlines()]
    found = [re.match(rf"\$ {program}(?:\s+([^\s#]+))?(?:\s|$)", line) for line in lines]
    return {match.group(1) or "" for match in found if match}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    num_blocks = run_blocks(page)
    assert num_blocks > 0 or page != ROOT / "README.md"


def test_console_blocks_name_real_targets():
    named = {target for page in PAGES for target in commands(page.read_text(encoding="utf-8"), "make")}
    assert named - {""} <= make_targets()


def test_console_blocks_name_real_subcommands(capsys: pytest.CaptureFixture[str]):
    named = {name for page in PAGES for name in commands(page.read_text(encoding="utf-8"), "trainonce")}
    for name in sorted(named - {""}):
        assert main([name, "--help"]) == 0, f"trainonce {name}: {capsys.readouterr().err}"


def test_every_block_of_python_is_run_but_for_quotations():
    for page in PAGES:
        fences = set(re.findall(r"^ *```([\w-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        quoted = fences - {"python", "console", "diff", "text"}
        assert quoted <= ({"py"} if page.name in QUOTING else set()), f"{page.name}: {quoted}"


def test_links_lead_somewhere():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)|(?:href|src)=\"([^\"#]+)\"", text):
            target = "".join(target)
            assert re.match(r"[a-z]+:", target) or (page.parent / target).exists(), (
                f"{page.name} links to {target}, which is not there"
            )


def test_blocks_of_a_page_share_names_and_fail_loudly(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n```python\na = 1\n```\ntext\n```python\nassert a == 1\n```\n")
    assert run_blocks(page) == 2
    page.write_text("```python\na = 1\n```\n```python\nassert a == 2\n```\n")
    with pytest.raises(AssertionError):
        run_blocks(page)


def test_commands_are_read_from_console_blocks_only():
    text = (
        "$ make nothing\n```console\n$ make test  # quick\n$ make\noutput\n$ trainonce inspect "
        "timm:resnet18\n```\n"
    )
    assert commands(text, "make") == {"test", ""}
    assert commands(text, "trainonce") == {"inspect"}


def test_the_first_screen_of_the_readme_shows_what_it_does():
    screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
    assert "**Train once. Ship a small model.**" in screen
    assert "$ pip install " in screen
    assert "$ make demo" in screen
    assert "$ trainonce train" in screen
    assert screen.count("<img ") == 2
    (diff,) = [block for _, block in blocks(screen, "diff")]
    added = "\n".join(line[1:].strip() for line in diff.splitlines() if line.startswith("+"))
    statements = [ast.unparse(statement) for statement in ast.parse(added).body]
    assert len(statements) == 3
    assert "trainonce.attach(" in statements[0]


def test_no_block_of_the_readme_scrolls_on_a_screen_1280_pixels_wide():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for _, block in blocks(text, r"\w+") for line in block.splitlines()]
    assert len(lines) > 30
    assert [line for line in lines if len(line) > 96] == []


def test_the_diff_of_the_readme_runs_and_keeps_its_budget():
    (diff,) = [block for _, block in blocks((ROOT / "README.md").read_text(encoding="utf-8"), "diff")]
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(128, 3)
    )
    names = {
        "trainonce": trainonce,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "criterion": nn.CrossEntropyLoss(),
        "loader": [(torch.randn(8, 3, 8, 8), torch.arange(8) % 3)] * 4,
        "epochs": 10,
    }
    before = trainonce.inspect(model, names["loader"][0][0]).macs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", trainonce.ShortRunWarning)
        exec("\n".join(line[2:] for line in diff.splitlines()), names)
    assert trainonce.inspect(names["small"], names["loader"][0][0]).macs <= 0.45 * before
