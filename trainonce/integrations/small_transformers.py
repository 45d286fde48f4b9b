"""What a `Trainer` of transformers has saved with a pruner: its state, and the small model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from trainonce.errors import PrunerError
from trainonce.messages.plain_text import shown, shown_path
from trainonce.pruning.restored import note_restored
from trainonce.pruning.restoring import restore
from trainonce.storage.checkpoint.folder import is_written, read_checkpoint

STATE_FOLDER = "trainonce"
"""Where a checkpoint of `Trainer` has the pruner's state."""


def load(folder: str | Path, *, into: nn.Module | None = None) -> nn.Module:
    """The model that a `Trainer` with this callback has saved, small as it was; in eval mode.

    The config in the folder is the dense model's, so `from_pretrained` refuses the weights; with
    `uniform=True` it is the small model's, and `from_pretrained` does the same as this.

    Args:
        folder: What `trainer.save_model` or a checkpoint wrote.
        into: The dense model, newly built, or one that is as small already; None: built from the config in
            the folder.
    """
    place = Path(folder)
    if not place.is_dir():
        raise PrunerError(f"{shown_path(place)} is no folder. Pass what trainer.save_model wrote.")
    # Before anything is cut.
    state = read_state(place) if is_written(place / STATE_FOLDER) else None
    weights = _weights_in(place)
    is_small = into is not None and _fits(into, weights)
    if state is None and not is_small:
        raise PrunerError(
            f"{shown_path(place)} was saved without TrainOnceCallback, so it doesn't say how small the model "
            "is. Pass a model of its size: load(folder, into=small). A dense one is loaded with "
            "from_pretrained."
        )
    model = _built_from(place) if into is None else into
    # With equal widths the config in the folder is the small model's.
    is_small = is_small or (into is None and _fits(model, weights))
    if state is not None and not is_small:
        restore(model, state)
        # No run continues here; a pruner that is attached to this model begins a new one.
        note_restored(model, ())
    try:
        keys = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise PrunerError(
            f"the weights in {shown_path(place)} don't fit the pruner's state beside them "
            f"({shown(error, most=300)}). Save the model again, with the callback."
        ) from None
    _check_complete(model, keys.missing_keys, keys.unexpected_keys, folder)
    return model.eval()


def read_state(folder: str | Path) -> dict[str, Any]:
    """The pruner's state in what a `Trainer` has saved; PrunerError if there is none."""
    place = Path(folder) / STATE_FOLDER
    if not is_written(place):
        raise PrunerError(
            f"{shown_path(Path(folder))} was saved without TrainOnceCallback, so it has no pruner state. "
            "To start from its weights, load them with from_pretrained and train without "
            "resume_from_checkpoint."
        )
    return read_checkpoint(place)


def saved_epochs(folder: str | Path) -> int | None:
    """The epochs of the run that wrote a checkpoint; None if it doesn't say so."""
    try:
        said = json.loads((Path(folder) / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # The trainer itself says what it misses.
        return None
    epochs = said.get("num_train_epochs") if isinstance(said, dict) else None
    return epochs if type(epochs) is int else None


def _weights_in(folder: Path) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    # One file, or several of a large model.
    for file in folder.glob("model*.safetensors"):
        try:
            weights |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise PrunerError(
                f"{shown_path(file)} can't be read ({shown(error, most=300)}). Copy it again."
            ) from None
    if not weights:
        raise PrunerError(
            f"{shown_path(folder)} has no weights: no file model*.safetensors, and no other format is read. "
            "Save it with trainer.save_model."
        )
    return weights


def _fits(model: nn.Module, weights: Mapping[str, Tensor]) -> bool:
    """Whether a model has all these weights, in their shapes."""
    own = model.state_dict()
    return all(name in own and own[name].shape == weight.shape for name, weight in weights.items())


def _check_complete(model: nn.Module, missing: list[str], unexpected: list[str], folder: str | Path) -> None:
    tensors = model.state_dict()
    loaded = {tensors[name].data_ptr() for name in tensors.keys() - missing}
    # Of weights that are tied, one is saved.
    odd = [name for name in missing if tensors[name].data_ptr() not in loaded] + unexpected
    if odd:
        raise PrunerError(
            f"{shown_path(Path(folder))} was saved from another model: only one of them has {odd[0]}. Pass "
            "the dense model that was trained: load(folder, into=model)."
        )


def _built_from(folder: Path) -> nn.Module:
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = getattr(transformers, (config.architectures or [""])[0], None)
    except (OSError, ValueError):
        # No config, or one of a class of the user's own.
        kind = None
    if kind is None:
        raise PrunerError(
            f"{shown_path(folder)} is of a class that transformers doesn't have. Build the dense model "
            "yourself and pass it: load(folder, into=model)."
        )
    model = kind(config)
    if model.can_generate() and (folder / "generation_config.json").is_file():
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    return model
