"""Prune half of a YOLO's FLOPs while Ultralytics trains it.

    python ultralytics_yolo.py yolo11n.pt coco8.yaml 100 640

Takes the model (a yaml starts from scratch), the data, the number of epochs and the size of the images.
"""

from __future__ import annotations

import sys

from ultralytics import YOLO

from trainonce.integrations.ultralytics import prune


def main() -> None:
    """Train, prune on the way, open what was saved, export it."""
    weights, data, epochs, size = sys.argv[1:]
    model = prune(YOLO(weights), keep_flops=0.5)
    model.train(data=data, epochs=int(epochs), imgsz=int(size))
    share, best = model.trainer.pruner.keep_now, model.trainer.best
    small = YOLO(best)
    num_parameters = sum(parameter.numel() for parameter in small.model.parameters())
    print(f"{best} has {num_parameters:,} parameters and {share:.1%} of the FLOPs")
    print(f"exported: {small.export(format='onnx', imgsz=int(size), simplify=False)}")


if __name__ == "__main__":
    main()
