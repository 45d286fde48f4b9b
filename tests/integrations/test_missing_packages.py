"""An adapter whose trainer is not installed says so in one line."""

from __future__ import annotations

import importlib
import sys

import pytest

from trainonce.errors import MissingPackageError


@pytest.mark.parametrize("name", ["lightning", "transformers", "ultralytics"])
def test_a_trainer_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, name: str):
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, name, None)
    for module in [module for module in sys.modules if module.startswith("trainonce.integrations.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(MissingPackageError, match=rf"^this needs {name} [^\n]*pip install '?{name}[^\n]*$"):
        importlib.import_module(f"trainonce.integrations.{name}")
