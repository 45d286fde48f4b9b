"""Which code a result is of: takes a contender, gives a hash of all code that could change its accuracy.

Comments, docstrings and layout don't count; what is hashed is what Python would run.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.sheet import ROOT

_HARNESS = ("resnet.py", "recipe.py", "images.py", "accuracy/child.py", "accuracy/contender.py")
_ALSO = {"train_prune_tune": ("torchpruning.py",), "hesso": ("hesso.py",), "studied": ("accuracy/ours.py",)}
_USES_LIBRARY = {"ours", "studied"}
_LIBRARY = (
    *("attachment", "budget", "cost", "gates", "lastwriters", "policies", "projection", "proximal"),
    *("pruner", "pulling", "schedule", "shrinking", "succession", "units"),
)


def fingerprint(contender: str) -> str:
    """Equal as long as the contender's code is; the others' may change."""
    entry = CONTENDERS[contender]
    own = (f"{entry.package}/{entry.module}.py", *_ALSO.get(entry.module, ()))
    files = [ROOT / "benchmarks" / name for name in (*_HARNESS, *own)]
    if entry.module in _USES_LIBRARY:
        # How channels are found does not matter here: the groups of these ResNets are what they are.
        files += [path for name in _LIBRARY for path in _sources(ROOT / "trainonce" / name)]
    digest = hashlib.sha256(entry.settings.encode())
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
