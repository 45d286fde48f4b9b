"""Which code a result is of: takes a contender, gives a hash of all code that could change its accuracy.

Comments, docstrings and layout don't count; what is hashed is what Python would run.
"""

from __future__ import annotations

import ast
import hashlib
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
_USES_CUT = ("channels", "inspection", "plan", "surgery")
_USES_PRUNER = (
    *_USES_CUT,
    *("attachment", "budget", "cost", "distributed", "gates", "lastwriters", "projection", "proximal"),
    *("pruner", "pulling", "schedule", "shrinking", "succession", "units", "policies/policy"),
)
_USES_LIBRARY = {
    "from_scratch": _USES_CUT,
    "shaped": (*_USES_CUT, "budget", "cost", "units"),
    **dict.fromkeys(("ours", "other_policies", "studied"), _USES_PRUNER),
}
"""How channels are found does not matter here: the groups of these ResNets are what they are."""


def fingerprint(contender: str) -> str:
    """Equal as long as the contender's code is; the others' may change."""
    entry = CONTENDERS[contender]
    own = (f"{entry.package}/{entry.module}.py", *_ALSO.get(entry.module, ()))
    library = (*_USES_LIBRARY.get(entry.module, ()), *(f"policies/{name}" for name in entry.policy_files))
    files = [ROOT / "benchmarks" / name for name in (*_HARNESS, *own)]
    files += [path for name in library for path in _sources(ROOT / "trainonce" / name)]
    digest = hashlib.sha256((entry.settings + (fingerprint(entry.needs) if entry.needs else "")).encode())
    for path in dict.fromkeys(files):
        digest.update(path.name.encode() + _meaning(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:12]


def _sources(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def _meaning(source: str) -> str:
    """The syntax tree without docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [line for line in body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
            node.__setattr__("body", kept)
    return ast.dump(tree)
