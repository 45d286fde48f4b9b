"""The functions on the page about other people's trainers do what the page says."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import trainonce

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
pytestmark = [
    pytest.mark.filterwarnings("ignore::trainonce.ShortRunWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning"),
]


@pytest.fixture
def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the Python blocks below a heading define."""
    monkeypatch.chdir(tmp_path)

    def run(heading: str) -> dict[str, Any]:
        text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
        found: dict[str, Any] = {}
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            exec(block, found)
        return found

    return run


def test_the_trainer_of_transformers(section: Any):
    pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("accelerate", reason="needs accelerate")
    from integrations.hugging_face import images, vit

    rows = images(512)
    small = section("transformers")["train"](vit(), rows)
    example = {"pixel_values": torch.stack([row["pixel_values"] for row in rows[:2]])}
    assert trainonce.inspect(small, example).macs <= 0.5 * trainonce.inspect(vit(), example).macs
    assert Path("small", "model.safetensors").is_file()


def test_the_trainer_of_lightning(section: Any):
    pytest.importorskip("lightning", reason="needs lightning")
    from integrations.lightning_runs import Net, loader

    net = Net()
    section("Lightning")["fit"](net, loader(256))
    points = torch.zeros(2, 12)
    assert trainonce.inspect(net, points).macs <= 0.5 * trainonce.inspect(Net(), points).macs
    assert callable(section("Lightning")["Small"].on_load_checkpoint)


def test_the_loop_of_accelerate(section: Any):
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    whole = trainonce.inspect(net, torch.zeros(2, 12)).macs
    data = TensorDataset(torch.randn(483, 12), torch.randint(4, (483,)))
    with warnings.catch_warnings():
        # A step beyond the end would warn: 121 batches are 61 steps.
        warnings.simplefilter("error", RuntimeWarning)
        small = section("Accelerate")["loop"](
            accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2),
            net,
            torch.optim.AdamW(net.parameters(), lr=3e-3),
            DataLoader(data, batch_size=4, shuffle=True),
            cross_entropy,
        )
    assert trainonce.inspect(small, torch.zeros(2, 12)).macs <= 0.5 * whole
