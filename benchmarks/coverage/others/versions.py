"""What is installed where the models are measured.

`python -m benchmarks.coverage.others.versions` prints it as JSON.
"""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

from benchmarks.harness.children import child_environment
from benchmarks.sheets.sheet import ROOT, version_of

PACKAGES = (
    *("torch", "conformer", "diffusers", "monai", "neuralforecast", "open-clip-torch"),
    *("segmentation-models-pytorch", "spandrel", "speechbrain", "torch-geometric", "torchaudio"),
    *("transformers", "ultralytics", "vit-pytorch", "x-transformers"),
)


def installed_versions(python: Path) -> dict[str, str]:
    """The version of every package there, and Python's own."""
    command = [str(python), "-m", "benchmarks.coverage.others.versions"]
    environment = child_environment(is_peer=True)
    found = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


def main() -> None:
    """Print them."""
    versions = {name: version_of(name) for name in PACKAGES}
    print(json.dumps({**versions, "Python": platform.python_version()}))


if __name__ == "__main__":
    main()
