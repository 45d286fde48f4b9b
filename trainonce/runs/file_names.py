"""What the files and folders of a run are called: every other module asks here."""

from __future__ import annotations

CONFIG = "config.yaml"
STARTED = "started.yaml"
"""The settings as the run started with them, under their checksum."""

METRICS, SUMMARY = "metrics.jsonl", "summary.csv"
"""One record per epoch, for programs and for spreadsheets."""

ENVIRONMENT, LOG = "env.json", "log.txt"
REPORT, PAGE = "report.json", "report.html"
CHECKPOINTS, SMALL = "checkpoints", "small"
CARD = f"{SMALL}/README.md"
CONTROLLER_SAMPLES = "controller_samples.json"
TENSORBOARD = "tensorboard"
COMPARISON = "comparison.html"
"""Of several runs; it is written where the command is called."""

FILES = (CONFIG, METRICS, SUMMARY, ENVIRONMENT, LOG, REPORT, PAGE, STARTED)
