"""YOLO and RT-DETR, from the configs that Ultralytics ships."""

from __future__ import annotations

from functools import partial

from ultralytics.nn import tasks

from benchmarks.coverage.others.catalogue import Built, image


def _yolo(kind: str, name: str) -> Built:
    return getattr(tasks, kind)(f"{name}.yaml", verbose=False), image()


MODELS = {
    "yolov8n-seg": partial(_yolo, "SegmentationModel", "yolov8n-seg"),
    "yolo11n": partial(_yolo, "DetectionModel", "yolo11n"),
    "yolo12n": partial(_yolo, "DetectionModel", "yolo12n"),
    "yolo26n": partial(_yolo, "DetectionModel", "yolo26n"),
    "rtdetr-resnet50": partial(_yolo, "RTDETRDetectionModel", "rtdetr-resnet50"),
}
