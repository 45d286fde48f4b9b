"""A moment of a run, as the live view is given it."""

from trainonce.runs.report.live import Moment


def moment(**changes) -> Moment:
    values = {
        "step": 30,
        "total_steps": 100,
        "epoch": 3.0,
        "epochs": 10,
        "phase": "search",
        "loss": 0.51234,
        "lr": 0.1,
        "top1": 91.5,
    }
    values |= {
        "keep_flops": 0.7,
        "keep_flops_target": 0.45,
        "num_alive": 70,
        "num_units": 96,
        "steps_per_second": 2.0,
    }
    return Moment(**(values | changes))
