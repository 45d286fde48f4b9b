"""Nothing that was read from a file can run as code."""

import ast
from pathlib import Path

import pytest

from support.sources import ROOT, imported_names

UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


LOADERS = {"torch.load", "torch.jit.load", "torch.export.load", "torch.distributed.checkpoint.load"}


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
