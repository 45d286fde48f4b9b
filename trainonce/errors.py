"""Everything that trainonce raises on purpose.

Each message is one line that says what is wrong and what to do.
"""


class TrainonceError(Exception):
    """Base class of all errors in this library; nearly all are ValueErrors, too."""


class ModelError(TrainonceError, ValueError):
    """A model or example that can't be inspected."""


class PlanError(TrainonceError, ValueError):
    """A plan that can't be used: damaged, for another model, or emptying a layer."""


class BudgetError(TrainonceError, ValueError):
    """A budget that this model can't meet."""


class LossError(TrainonceError, ValueError):
    """A loss function that the controller can't learn from."""


class PrunerError(TrainonceError, ValueError):
    """A pruner used in a way that can't work; its state is unchanged."""


class SettingError(TrainonceError, ValueError):
    """A setting outside its range, or two that contradict each other."""


class DivergedError(TrainonceError, ValueError):
    """A run whose loss or gradients are not finite, step after step."""


class RunInterruptedError(TrainonceError):
    """A run that was interrupted, has been saved, and can be resumed."""


class DataError(TrainonceError, ValueError):
    """Data that can't be used: an unknown name, a missing folder, too many broken images."""


class DataChangedError(TrainonceError, ValueError):
    """Data that differs from what the run was started with, or a damaged record of it."""


class WorkerLostError(TrainonceError, ValueError):
    """Data loading workers that were killed repeatedly."""


class ArtifactError(TrainonceError, ValueError):
    """A folder that can't be written or read.

    It exists, is damaged, incomplete or newer than this library.
    """


class ModelMismatchError(ArtifactError):
    """An intact folder that was saved from another model."""


class CheckpointError(TrainonceError, ValueError):
    """A checkpoint that can't be written or read."""


class DiskFullError(CheckpointError):
    """A checkpoint that didn't fit on the disk; earlier ones are intact."""


class LinkError(TrainonceError, ValueError):
    """A symlink where trainonce would write or delete: following it could change other files."""


class FolderInUseError(TrainonceError, ValueError):
    """A folder that another run writes to."""


class ReportError(TrainonceError, ValueError):
    """A folder without a run, or whose run hasn't finished its first epoch."""


class InputError(TrainonceError, ValueError):
    """An --input that is not a shape."""


class UnknownModelError(TrainonceError, ValueError):
    """A name that stands for no model, or for one that can't be pruned."""


class WeightsError(TrainonceError, ValueError):
    """Pretrained weights that can't be used: a damaged or unsafe file, another model's, no network."""


class MissingPackageError(TrainonceError, ImportError):
    """A source whose library is not installed."""


class EngineError(TrainonceError, ValueError):
    """An engine that is not installed or does not run here."""


class ExportError(TrainonceError, ValueError):
    """An exported file that doesn't match the model or can't be written."""
