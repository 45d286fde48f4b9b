"""The rules of the house: layers, line budgets, what may be imported, what may never be called."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "trainonce"

ROOMS = [
    "errors",
    "messages",
    "execution",
    "structure",
    "tracing",
    "surgery",
    "storage",
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
NAMES_WITHOUT_MEANING = {"utils", "helpers", "misc", "common", "base"}

UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADERS = {"torch.load", "torch.jit.load", "torch.export.load", "torch.distributed.checkpoint.load"}


def imported_names(source: str) -> Iterator[str]:
    """Every dotted name that an import statement mentions: `from a.b import c` gives `a.b.c`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


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


def dangerous_calls(source: str) -> list[str]:
    """What could run code that was read from a file, as `line: what`."""
    tree = ast.parse(source)
    wrong = [
        f"imports {name}"
        for name in imported_names(source)
        if name.split(".")[0] in UNPICKLERS or name in LOADERS
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in {"eval", "exec", "__import__"}:
            wrong.append(f"{node.lineno}: {node.id}")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in LOADERS:
            wrong.append(f"{node.lineno}: {ast.unparse(node)}")
        elif (
            isinstance(node, ast.keyword) and node.arg == "weights_only" and ast.unparse(node.value) != "True"
        ):
            wrong.append(f"{node.value.lineno}: weights_only={ast.unparse(node.value)}")
        elif (
            isinstance(node, ast.keyword)
            and node.arg == "allow_pickle"
            and ast.unparse(node.value) != "False"
        ):
            wrong.append(f"{node.value.lineno}: allow_pickle={ast.unparse(node.value)}")
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


def test_files_and_functions_keep_their_budgets():
    assert check_budgets(ROOT) == []


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
    assert [message.split()[0].rstrip(":") for message in check_budgets(tmp_path)] == ["deep.py", "long.py"]


def test_nothing_is_unpickled_or_evaluated():
    found = {path.relative_to(ROOT): dangerous_calls(path.read_text()) for path in ROOT.rglob("*.py")}
    exporting = found.pop(Path("deployment/exporting.py"))
    reading = found.pop(Path("zoo/weight_files.py"))
    assert {path: calls for path, calls in found.items() if calls} == {}
    # An export reads back the bytes that it has just made, never a file.
    assert [call.partition(": ")[2] for call in exporting] == ["torch.export.load"]
    assert "torch.export.load(content)" in (ROOT / "deployment" / "exporting.py").read_text()
    # Weights to start from may be a checkpoint of torch.save: tensors and plain values are read, no code.
    assert [call.partition(": ")[2] for call in reading] == ["torch.load"]
    assert (ROOT / "zoo" / "weight_files.py").read_text().count("weights_only=True") == 1


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('a')",
        "from torch import load",
        "import torch\nread = torch.load",
        "import torch\ntorch.export.load('a')",
        "eval('1')",
        "run = exec",
        "__import__('os')",
        "read('a', weights_only=False)",
        "read('a', weights_only=trusted)",
        "numpy.load('a', allow_pickle=True)",
    ],
)
def test_a_dangerous_call_is_found(source: str):
    assert dangerous_calls(source) != []


def test_a_model_may_be_put_into_eval_mode():
    assert dangerous_calls("model.eval()\nread('a', weights_only=True)") == []


def test_every_module_is_named_for_what_it_holds():
    assert [str(path) for path in ROOT.rglob("*.py") if path.stem in NAMES_WITHOUT_MEANING] == []


def test_sources_are_ascii():
    folders = [ROOT, *(ROOT.parent / name for name in ("tests", "examples", "benchmarks"))]
    assert [
        str(path) for folder in folders for path in folder.rglob("*.py") if not path.read_bytes().isascii()
    ] == []
