"""Which code a result is of: takes a run, gives a hash of all code that could change its accuracy.

Comments, docstrings and layout don't count, nor in which file a definition stands and how it is imported:
what is hashed are the definitions that Python would run. So code can move between files without making a
recorded run stale.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmarks.harness.recipes import RECIPES
from benchmarks.sheets.sheet import ROOT
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration
from benchmarks.training.entry import Entry
from benchmarks.training.variants import Make

OURS = ("trainonce", "benchmarks")
_TRAINING = "benchmarks/training"
_HARNESS = (
    *(f"benchmarks/harness/{name}.py" for name in ("recipe", "flops", "task")),
    *(f"{_TRAINING}/{name}.py" for name in ("child", "contender", "teaching")),
)
_LIBRARY = ("trainonce/structure", "trainonce/surgery", "trainonce/teaching", "trainonce/pruning")
"""How channels are found does not matter here: the groups of these ResNets are what they are."""

_OURS = (
    *_LIBRARY,
    "trainonce/training/starts.py",
    "benchmarks/harness/pruning.py",
    f"{_TRAINING}/variants.py",
    f"{_TRAINING}/ours.py",
)
_ALSO = {
    "train_prune_tune": ("benchmarks/peers/torchpruning.py",),
    "hesso": ("benchmarks/peers/hesso.py", "benchmarks/peers/group_search.py"),
    **dict.fromkeys(("ours", "studied", "from_scratch"), _OURS),
}
_POLICIES = "trainonce.pruning.policies."
_TASKS = {"images": ("resnet", "images", "image_task"), "language": ("decoder", "byte_task")}


def code_of(run: Configuration) -> str:
    """The fingerprint of a run; where it begins with another's weights, the other's code counts, too."""
    own = fingerprint(run.contender, task=run.task, recipe=run.recipe)
    needed = [code_of(other) for other in run.needed]
    return hashlib.sha256(" ".join((own, *needed)).encode()).hexdigest()[:12] if needed else own


def fingerprint(contender: str, *, task: str = "images", recipe: str = "short") -> str:
    """Equal as long as the code of contender and task is; the others' may change."""
    entry = CONTENDERS[contender]
    places = (
        *_HARNESS,
        *(f"benchmarks/harness/{name}.py" for name in _TASKS[task]),
        f"{_TRAINING}/{entry.module}.py",
        *_ALSO.get(entry.module, ()),
    )
    files = {path for place in places for path in _sources(ROOT / place) if "policies" not in path.parts}
    if entry.settings is not None and entry.module in _ALSO:
        files |= _policy_files(entry)
    needed = fingerprint(entry.needs, task=task, recipe=recipe) if entry.needs else ""
    class_name = entry.kind.partition(":")[2]
    digest = hashlib.sha256(f"{class_name} {entry.settings!r} {needed} {RECIPES[recipe]!r}".encode())
    for definition in sorted(meaning for path in files for meaning in _meanings_of(path)):
        digest.update(definition.encode())
    return digest.hexdigest()[:12]


def _sources(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


@cache
def _meanings_of(path: Path) -> tuple[str, ...]:
    return tuple(meanings(path.read_text(encoding="utf-8")))


def _policy_files(entry: Entry) -> set[Path]:
    """What a contender uses of the policies: the files of its classes, and what these import there."""
    policy = getattr(entry.settings, "policy", None)
    kinds = policy.kinds() if isinstance(policy, Make) else ()
    left = {base.__module__ for kind in kinds for base in kind.__mro__} or {f"{_POLICIES}default"}
    files: set[Path] = set()
    while left:
        name = left.pop()
        path = ROOT / f"{name.replace('.', '/')}.py"
        if name.startswith(_POLICIES) and path not in files:
            files.add(path)
            left |= set(_IMPORTED.findall(path.read_text(encoding="utf-8")))
    return files


_IMPORTED = re.compile(r"^from (trainonce\.pruning\.policies\.[\w.]+) import", re.MULTILINE)


def meanings(source: str) -> Iterator[str]:
    """Every top statement's syntax tree, without docstrings, imports and names of our modules."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS
        for alias in node.names
    }
    for statement in _Bare(imported).visit(tree).body:
        yield ast.dump(statement)


class _Bare(ast.NodeTransformer):
    """Drops what doesn't change what a definition does.

    `module.name` becomes `name` where the module is one of ours.
    """

    def __init__(self, imported: set[str]) -> None:
        self._imported = imported

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self._imported and node.value.id.islower():
            return ast.Name(id=node.attr, ctx=node.ctx)
        return self.generic_visit(node)
