"""The rules of the house: layers, line budgets, what may be imported, what may never be called."""

import ast
import re
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.sources import ROOT, imported_names

ROOMS = [
    "errors",
    "messages",
    "execution",
    "structure",
    "tracing",
    "surgery",
    "storage",
    "teaching",
    "pruning",
    "engines",
    "zoo",
    "data",
    "runs",
    "training",
    "integrations",
    "recipes",
    "deployment",
    "cli",
    "__main__",
]
"""From the ground up: a room may use what stands before it.

Inside a room, modules and smaller rooms use each other in no circle.
"""


CORE_ROOMS = ROOMS[: ROOMS.index("zoo")]


CORE = {"torch", "safetensors", "trainonce"} | sys.stdlib_module_names


ROOMS_WITH_TABLES = {"runs", "cli"}


MAX_FILE_LINES = 300


MAX_FUNCTION_LINES = 60
MAX_COLUMNS = 110
PLACES = ("trainonce", "tests", "benchmarks", "docs", "examples")
NOT_OF_A_ROOM = {"docs", "fuzzing", "graphs", "house", "support"}
"""Folders of tests that mirror no room: documents, fuzzers, nets, these rules, and what tests share."""


NAMES_WITHOUT_MEANING = {"utils", "helpers", "misc", "common", "base"}


def check_layering(root: Path) -> list[str]:
    """What imports from a room above its own, and circles inside rooms."""
    wrong, used = [], defaultdict(lambda: defaultdict(set))
    for path in sorted(root.rglob("*.py")):
        here = path.relative_to(root).with_suffix("").parts
        if here == ("__init__",):
            continue
        if here[0] not in ROOMS:
            wrong.append(f"{path.relative_to(root)} is in no room; the rooms are in ROOMS")
            continue
        for there in sorted(modules_used(path.read_text(), root)):
            if there[0] not in ROOMS:
                wrong.append(
                    f"{path.relative_to(root)} may not import trainonce.{there[0]}: import from the module "
                    "that defines it"
                )
            elif there[0] != here[0] and ROOMS.index(there[0]) >= ROOMS.index(here[0]):
                wrong.append(f"{path.relative_to(root)} may not import trainonce.{'.'.join(there)}")
            else:
                depth = next(
                    (
                        place
                        for place, (one, other) in enumerate(zip(here, there, strict=False))
                        if one != other
                    ),
                    None,
                )
                if depth:
                    used[here[:depth]][here[depth]].add(there[depth])
    for room, neighbors in used.items():
        try:
            TopologicalSorter(neighbors).prepare()
        except CycleError as error:
            wrong.append(f"{'/'.join(room)}: {' -> '.join(error.args[1])} is a circle")
    return wrong


def modules_used(source: str, root: Path) -> set[tuple[str, ...]]:
    """The modules of ours that a source imports, as the parts of their names."""
    found = set()
    for name in imported_names(source):
        parts = name.split(".")[1:] if name.startswith("trainonce.") else []
        place = root.joinpath(*parts)
        # `from trainonce.a.b import c` names a module or something in one.
        is_module = place.is_dir() or place.with_suffix(".py").is_file()
        if parts:
            found.add(tuple(parts if is_module or len(parts) == 1 else parts[:-1]))
    return found


def check_dependencies(root: Path) -> list[str]:
    wrong = []
    for path in sorted(root.rglob("*.py")):
        here = path.relative_to(root).with_suffix("").parts[0]
        for package in sorted({name.split(".")[0] for name in imported_names(path.read_text())}):
            if package not in CORE and (
                here in CORE_ROOMS or (package == "rich" and here not in ROOMS_WITH_TABLES)
            ):
                wrong.append(f"{path.relative_to(root)} may not import {package}")
    return wrong


def check_budgets(root: Path) -> list[str]:
    wrong = []
    for path in sorted(root.rglob("*.py")):
        source = path.read_text()
        num_lines = len(source.splitlines())
        # Ruff lets lines with a comment for a linter be longer.
        wrong += [
            f"{path.relative_to(root)}:{number} has {len(line)} columns, the budget is {MAX_COLUMNS}"
            for number, line in enumerate(source.splitlines(), start=1)
            if len(line) > MAX_COLUMNS
        ]
        if num_lines > MAX_FILE_LINES:
            wrong.append(f"{path.relative_to(root)} has {num_lines} lines, the budget is {MAX_FILE_LINES}")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if num_lines > MAX_FUNCTION_LINES:
                    wrong.append(
                        f"{path.relative_to(root)}: {node.name} has {num_lines} lines, the budget is "
                        f"{MAX_FUNCTION_LINES}"
                    )
    return wrong


def write(root: Path, name: str, source: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


def test_modules_import_only_from_below():
    assert check_layering(ROOT) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("structure/channels.py", "from trainonce.tracing.partition import build_partition"),
        ("surgery/slicing.py", "import trainonce.pruning.budget"),
        ("surgery/slicing.py", "from trainonce import pruning"),
        ("structure/cost.py", "def late():\n    from trainonce.surgery.slicing import cut"),
        ("surgery/slicing.py", "from trainonce import cut"),
        ("novelty.py", "import torch"),
        ("novelty/thing.py", "import torch"),
        ("__main__.py", "from trainonce.novelty import thing"),
    ],
)
def test_an_upward_or_homeless_import_is_found(tmp_path: Path, name: str, source: str):
    write(tmp_path, name, source)
    assert len(check_layering(tmp_path)) == 1


@pytest.mark.parametrize(
    "sources",
    [
        {"data/a.py": "from trainonce.data.b import x", "data/b.py": "from trainonce.data import a"},
        {"data/a.py": "from trainonce.data.small.b import x", "data/small/b.py": "import trainonce.data.a"},
        {
            "data/one/a.py": "from trainonce.data.other.b import x",
            "data/other/b.py": "import torch",
            "data/other/c.py": "from trainonce.data.one.a import x",
        },
    ],
)
def test_a_circle_inside_a_room_is_found(tmp_path: Path, sources: dict[str, str]):
    for name, source in sources.items():
        write(tmp_path, name, source)
    assert [message.endswith("is a circle") for message in check_layering(tmp_path)] == [True]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("surgery/slicing.py", "from trainonce.structure.channels import Plan"),
        ("tracing/operators/movement.py", "from trainonce.tracing.state.labels import join"),
        (
            "surgery/inspection.py",
            "from trainonce.tracing import capture\nfrom trainonce.surgery.slicing import cut",
        ),
        ("__init__.py", "from trainonce.cli import main"),
    ],
)
def test_a_downward_import_is_allowed(tmp_path: Path, name: str, source: str):
    write(tmp_path, name, source)
    assert check_layering(tmp_path) == []


def test_the_core_needs_torch_and_safetensors_only():
    assert check_dependencies(ROOT) == []


@pytest.mark.parametrize(
    "source", ["import numpy", "from rich.table import Table", "def late():\n    import timm"]
)
def test_a_heavy_import_in_the_core_is_found(tmp_path: Path, source: str):
    write(tmp_path, "surgery/slicing.py", source)
    assert len(check_dependencies(tmp_path)) == 1


@pytest.mark.parametrize("place", PLACES)
def test_files_functions_and_lines_keep_their_budgets(place: str):
    assert check_budgets(ROOT.parent / place) == []


def test_rooms_are_the_folders_and_three_modules_stand_outside():
    inside = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    modules = {path.stem for path in ROOT.glob("*.py")}
    assert modules == {"__init__", "__main__", "errors"}
    assert set(ROOMS) == inside | modules - {"__init__"}


def test_the_architecture_page_names_the_rooms_in_their_order():
    tree = (ROOT.parent / "docs" / "architecture.md").read_text().split("```")[1]
    named = re.findall(r"^  (\w+)(?:/|\.py) ", tree, re.MULTILINE)
    assert [name for name in named if name != "__init__"] == ROOMS[: ROOMS.index("__main__")]


def test_tests_mirror_the_rooms():
    folders = {path.name for path in (ROOT.parent / "tests").iterdir() if any(path.glob("*.py"))}
    assert folders - NOT_OF_A_ROOM == set(ROOMS) - {"errors", "__main__"}


def test_a_broken_budget_is_found(tmp_path: Path):
    write(tmp_path, "long.py", "a = 1\n" * (MAX_FILE_LINES + 1))
    write(tmp_path, "deep.py", "def deep():\n" + "    a = 1\n" * MAX_FUNCTION_LINES)
    write(
        tmp_path,
        "just_right.py",
        "def right():\n"
        + "    a = 1\n" * (MAX_FUNCTION_LINES - 1)
        + "a = 1\n" * (MAX_FILE_LINES - MAX_FUNCTION_LINES),
    )
    write(tmp_path, "wide.py", f"a = 1  # noqa: {'x' * MAX_COLUMNS}\n")
    assert [message.split()[0].split(":")[0] for message in check_budgets(tmp_path)] == [
        "deep.py",
        "long.py",
        "wide.py",
    ]


def test_every_module_is_named_for_what_it_holds():
    assert [str(path) for path in ROOT.rglob("*.py") if path.stem in NAMES_WITHOUT_MEANING] == []


def test_sources_are_ascii():
    folders = [ROOT, *(ROOT.parent / name for name in ("tests", "examples", "benchmarks"))]
    assert [
        str(path) for folder in folders for path in folder.rglob("*.py") if not path.read_bytes().isascii()
    ] == []
