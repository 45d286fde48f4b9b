"""A finished run for tests of the commands, made without training.

A cut model, its settings, and a report about it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import trainonce
from trainonce.recipes.run import Run
from trainonce.runs.config_file import to_yaml
from trainonce.training.settings import as_plain
from trainonce.zoo.sources import Build, build

PHASES = ("warm-up", "search", "settle", "small")


def make_run(folder: Path, **changes: Any) -> Path:
    """The folder of a finished run of ResNet-20 on digits, which nobody has trained."""
    run = Run(
        **(
            {"keep_flops": 0.5, "epochs": 4, "batch_size": 64, "model": "cifar:resnet20", "data": "digits"}
            | changes
        )
    )
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(as_plain(run)), encoding="utf-8")
    torch.manual_seed(0)
    model = build("cifar:resnet20", wanted=Build(num_classes=10, image_size=8)).model
    partition = trainonce.inspect(model, torch.randn(2, 3, 8, 8))
    trainonce.cut(model, trainonce.Plan.random(partition, keep=0.5, seed=0))
    trainonce.save(model, folder / "small")
    report = make_report(as_plain(run))
    (folder / "env.json").write_text(json.dumps(report["environment"]))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in report["history"]))
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def make_history() -> list[dict[str, Any]]:
    """The records of four epochs."""
    return [
        {
            "epoch": epoch,
            "step": 10 * epoch,
            "loss": 2.0 / epoch,
            "validation_loss": 2.1 / epoch,
            "top1": 20.0 * epoch,
            "top5": 22.0 * epoch,
            "lr": 0.1,
            "phase": PHASES[epoch - 1],
            "keep_flops": 1.0 if epoch < 2 else 0.5,
            "keep_params": 0.6,
            "controller_loss": 0.5 / epoch,
            "num_skipped": 0,
            "alive": {"conv1": [16 // epoch, 16], "stages.0.0": [8, 8]},
            "seconds": 3.5 * epoch,
        }
        for epoch in range(1, 5)
    ]


def make_report(config: dict[str, Any] | None = None) -> dict[str, Any]:
    """The facts of a run of four epochs and two layers."""
    latency = {"median": 2.0, "low": 1.5, "high": 2.5}
    return {
        "version": 1,
        "counter": "torch",
        "before": {"macs": 1000, "parameters": 500, "bytes": 2000, "latency_ms": latency},
        "after": {
            "macs": 450,
            "parameters": 300,
            "bytes": 1200,
            "latency_ms": latency,
            "top1": 80.0,
            "top5": 88.0,
            "validation_loss": 0.5,
        },
        "agreement": {"num_same": 360, "num_samples": 360, "largest_difference": 1e-7},
        "layers": [
            {
                "name": "conv1",
                "total": 16,
                "width": 1,
                "alive": 4,
                "kept": [0, 3, 4, 9],
                "kept_because": None,
                "writers": ["conv1.weight"],
            },
            {
                "name": "fc",
                "total": 10,
                "width": 1,
                "alive": 10,
                "kept": None,
                "kept_because": "it is the output",
                "writers": [],
            },
        ],
        "schedule": {
            "steps_per_epoch": 10,
            "total_steps": 40,
            "phases": {"search": 10, "shrink": 12, "settle": 20, "small": 30},
        },
        "num_skipped": 0,
        "controller_samples": 70,
        "seconds": 14.0,
        "config": config
        or {"model": "cifar:resnet20", "data": "digits", "keep_flops": 0.5, "seed": 0, "epochs": 4},
        "environment": {"python": "3.11", "torch": "2.6", "cpu": "a CPU", "threads": 1, "seed": 0},
        "history": make_history(),
    }
