"""Everything that trainonce raises on purpose.

Each message is one line that says what is wrong and what to do.
"""


class TrainonceError(Exception):
    """The base of all errors of this library; nearly all are ValueErrors, too."""


class ModelError(TrainonceError, ValueError):
    """A model or example that can't be inspected."""


class PlanError(TrainonceError, ValueError):
    """A plan that can't be used: damaged, for another model, or emptying a layer."""


class BudgetError(TrainonceError, ValueError):
    """A budget outside of what the model's groups allow."""


class LossError(TrainonceError, ValueError):
    """A closure that gives nothing to learn from."""


class PrunerError(TrainonceError, ValueError):
    """A pruner used in a way that can't work; its state is as before."""


class SettingError(TrainonceError, ValueError):
    """A setting outside its range, or two that contradict each other."""


class DivergedError(TrainonceError, ValueError):
    """A run whose loss or gradients are not finite, step after step."""


class RunInterruptedError(TrainonceError):
    """A run that was asked to stop, has saved itself, and can be resumed."""


class DataError(TrainonceError, ValueError):
    """Data that can't be used: an unknown name, a missing folder, too many broken images."""


class DataChangedError(TrainonceError, ValueError):
    """Data that is not what the run was started with, or a record of it that can't be read."""


class WorkerLostError(TrainonceError, ValueError):
    """Processes that read the data and were killed again and again."""


class ArtifactError(TrainonceError, ValueError):
    """A folder that can't be written or read.

    It exists, is damaged, incomplete or newer than this library.
    """


class ModelMismatchError(ArtifactError):
    """A sound folder, and a model that it was not saved from."""


class CheckpointError(TrainonceError, ValueError):
    """A checkpoint that can't be written or read."""


class DiskFullError(CheckpointError):
    """A checkpoint that the disk didn't take; those before it are as they were."""


class LinkError(TrainonceError, ValueError):
    """A link at a place that is written to or removed: following it would change files that are not ours."""


class FolderInUseError(TrainonceError, ValueError):
    """A folder that another run writes to."""


class ReportError(TrainonceError, ValueError):
    """A folder without a run, or with one that has not come to its first epoch."""


class InputError(TrainonceError, ValueError):
    """A written input that is not a shape."""


class UnknownModelError(TrainonceError, ValueError):
    """A source that names no model, or one that can't be pruned."""


class WeightsError(TrainonceError, ValueError):
    """Weights to start from that can't be had: a damaged or unsafe file, another model's, no network."""


class MissingPackageError(TrainonceError, ImportError):
    """A source whose library is not installed."""


class EngineError(TrainonceError, ValueError):
    """An engine that is not installed or does not run here."""


class ExportError(TrainonceError, ValueError):
    """A file that does not compute what the model does, or can't be written."""
