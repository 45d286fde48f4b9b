"""`trainonce evaluate`: accuracy of a run's small model on the validation data."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from trainonce.cli.finished_runs import add_run_arguments, load_small, open_run
from trainonce.cli.printing import say, show_json
from trainonce.training.loop.evaluation import CrossEntropy, Measuring, evaluate
from trainonce.training.loop.precision import choose_precision
from trainonce.training.loop.processes import Processes, choose_device


def add_commands(commands: Any) -> None:
    """Add `evaluate`."""
    parser = commands.add_parser(
        "evaluate",
        help="evaluate a run's small model on the validation data",
        description="Evaluate a run's small model on the validation data: top-1, top-5 and loss.",
    )
    add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> None:
    device = choose_device(arguments.device)
    run, data = open_run(arguments)
    model = load_small(run, data, arguments.folder).to(device)
    precision = choose_precision(device, amp=False, amp_dtype=run.amp_dtype)
    how = Measuring(
        loss=CrossEntropy(),
        batch_size=run.samples_per_step,
        device=device,
        precision=precision,
        processes=Processes(),
    )
    scores = evaluate(model, data.validation, how)
    if arguments.json:
        show_json({name: value for name, value in asdict(scores).items() if name != "metrics"})
        return
    parts = [
        f"{name} {value:.2f} %"
        for name, value in (("top-1", scores.top1), ("top-5", scores.top5))
        if value is not None
    ]
    say(f"{', '.join([*parts, f'loss {scores.loss:.4f}'])} on {scores.num_samples} samples of {run.data}")
