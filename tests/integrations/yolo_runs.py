"""Ultralytics on a few drawn pictures: a data set, and a process without trainonce."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from support.elsewhere import run_without_trainonce

# Read when ultralytics is imported: no settings in the user's home, nothing from the network or pip.
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.mkdtemp())
os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_VERBOSE="false")

SIZE = 64

SETTINGS = {
    "imgsz": SIZE,
    "batch": 4,
    "nbs": 4,
    "device": "cpu",
    "workers": 0,
    "amp": False,
    "plots": False,
    "optimizer": "SGD",
    "exist_ok": True,
}


def draw(folder: Path, *, num_pictures: int = 8) -> Path:
    """Pictures with a red and a blue rectangle each, as boxes and outlines; returns the data's yaml."""
    numbers = np.random.default_rng(0)
    for part in ("train", "val"):
        for kind in ("images", "labels"):
            (folder / part / kind).mkdir(parents=True)
        for number in range(num_pictures):
            picture = numbers.integers(0, 60, (SIZE, SIZE, 3), dtype=np.uint8)
            lines = []
            for label, color in enumerate([(220, 40, 40), (40, 40, 220)]):
                width, height = numbers.integers(16, 32, 2)
                left, top = numbers.integers(0, SIZE - width), numbers.integers(0, SIZE - height)
                picture[top : top + height, left : left + width] = color
                right, bottom = left + width, top + height
                corners = np.array([left, top, right, top, right, bottom, left, bottom]) / SIZE
                lines.append(f"{label} " + " ".join(map(str, corners)))
            Image.fromarray(picture).save(folder / part / "images" / f"{number}.png")
            (folder / part / "labels" / f"{number}.txt").write_text("\n".join(lines))
    names = "names: {0: red, 1: blue}"
    file = folder / "data.yaml"
    file.write_text(f"path: {folder}\ntrain: train/images\nval: val/images\n{names}\n")
    return file


WITHOUT = """
import json
from ultralytics import YOLO

found = {}
for weights, settings in json.loads(sys.argv[1]).items():
    model = YOLO(weights)
    metrics = model.val(save_json=True, **settings)
    try:
        YOLO(weights).train(epochs=1, **settings)
        refusal = "it trained"
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}"
    found[weights] = {
        "metrics": metrics.results_dict,
        "boxes": json.loads((metrics.save_dir / "predictions.json").read_text()),
        "num_parameters": sum(part.numel() for part in model.model.parameters()),
        "refusal": refusal,
    }
print("FOUND", json.dumps(found))
"""


def opened_without_trainonce(settings: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """For each weights file, what a process that can't import trainonce finds in it."""
    said = run_without_trainonce(WITHOUT, json.dumps(settings), folder=folder)
    return json.loads(said.partition("FOUND ")[2])
