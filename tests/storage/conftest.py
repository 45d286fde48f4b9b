"""What tests of storage share."""

from pathlib import Path

import pytest

from support.towers import save_small


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a saved small model."""
    return save_small(tmp_path)
