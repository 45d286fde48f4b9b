"""`fit`: a complete training run, from a model and data to a small model and a report."""

from trainonce.training.callbacks import Callback, RunState
from trainonce.training.fitting import fit
from trainonce.training.results.outcome import Result
from trainonce.training.settings import Settings

__all__ = ["Callback", "Result", "RunState", "Settings", "fit"]
