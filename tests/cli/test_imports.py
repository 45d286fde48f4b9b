"""`import trainonce` loads torch and safetensors only, and needs nothing that Windows doesn't have."""

import subprocess
import sys
from pathlib import Path

import trainonce

ROOT = Path(trainonce.__file__).parents[1]
HEAVY = ("rich", "yaml", "jinja2", "sklearn", "PIL", "torchvision", "timm", "transformers", "tensorboard")

CORE = """
import sys
import torch, safetensors.torch
before = set(sys.modules)
import trainonce
trainonce.attach, trainonce.inspect, trainonce.save, trainonce.load, trainonce.policies
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names) - {"trainonce", "torch", "safetensors"}))
print(*sorted(name for name in %r if name in sys.modules))
"""

WITHOUT_FCNTL = """
import sys
import torch
# None makes every import of it fail, as on Windows.
sys.modules["fcntl"] = None
import trainonce
for name in trainonce.__all__:
    getattr(trainonce, name)
from trainonce.cli import main
sys.exit(main(["--version"]))
"""


def run(source: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, text=True, capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_loads_torch_and_safetensors_only():
    others, heavy = run(CORE % (HEAVY,)).splitlines()
    assert others == ""
    assert heavy == ""


def test_a_package_that_is_loaded_too_early_is_found():
    others, heavy = run(
        (CORE % (HEAVY,)).replace("import trainonce\n", "import trainonce, yaml\n")
    ).splitlines()
    assert "yaml" in others.split()
    assert heavy == "yaml"


def test_everything_can_be_imported_without_fcntl():
    assert trainonce.__version__ in run(WITHOUT_FCNTL)
