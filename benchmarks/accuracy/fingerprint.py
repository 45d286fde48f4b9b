"""Which code a result is of: takes a contender, gives a hash of all code that could change its accuracy.

Comments, docstrings and layout don't count, nor in which file a definition stands and how it is imported:
what is hashed are the definitions that Python would run. So code can move between files without making a
recorded run stale.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.sheet import ROOT

_HARNESS = ("resnet.py", "recipe.py", "images.py", "flops.py", "accuracy/child.py", "accuracy/contender.py")
_ALSO = {
    "train_prune_tune": ("torchpruning.py",),
    "hesso": ("hesso.py", "accuracy/group_search.py"),
    "other_policies": ("accuracy/ours.py",),
    "studied": ("accuracy/ours.py", "studies/adamw.py", "studies/never_back.py"),
}
_USES_CUT = ("structure", "surgery")
_USES_PRUNER = (*_USES_CUT, "pruning")
_USES_LIBRARY = {
    "from_scratch": _USES_CUT,
    "shaped": (*_USES_CUT, "pruning/budget.py", "pruning/ranking.py", "pruning/units.py"),
    **dict.fromkeys(("ours", "other_policies", "studied"), _USES_PRUNER),
}
"""How channels are found does not matter here: the groups of these ResNets are what they are."""


OURS = ("trainonce", "benchmarks")
POLICIES = ROOT / "trainonce" / "pruning" / "policies"


def fingerprint(contender: str) -> str:
    """Equal as long as the contender's code is; the others' may change."""
    entry = CONTENDERS[contender]
    own = (f"{entry.package}/{entry.module}.py", *_ALSO.get(entry.module, ()))
    files = [ROOT / "benchmarks" / name for name in (*_HARNESS, *own)]
    for name in _USES_LIBRARY.get(entry.module, ()):
        files += [path for path in _sources(ROOT / "trainonce" / name) if "policies" not in path.parts]
    if "pruning" in _USES_LIBRARY.get(entry.module, ()):
        files += [path for path in _sources(POLICIES) if path.stem in (*entry.policy_files, "policy")]
    digest = hashlib.sha256((entry.settings + (fingerprint(entry.needs) if entry.needs else "")).encode())
    for definition in sorted(
        meaning for path in set(files) for meaning in meanings(path.read_text(encoding="utf-8"))
    ):
        digest.update(definition.encode())
    return digest.hexdigest()[:12]


def _sources(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def meanings(source: str) -> Iterator[str]:
    """The syntax tree of every statement at the top of a file, without docstrings, imports and names of our modules."""
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
