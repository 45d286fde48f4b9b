"""`fit`: a whole training run, from a model and data to a small model and a report."""

from trainonce.training.fitting import fit
from trainonce.training.limits import BadSetting
from trainonce.training.outcome import Result
from trainonce.training.settings import Settings
from trainonce.training.signals import Interrupted
from trainonce.training.trainer import Diverged

__all__ = ["BadSetting", "Diverged", "Interrupted", "Result", "Settings", "fit"]
