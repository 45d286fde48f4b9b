"""What Ultralytics' models need: files from which no dense model is built, outputs without inner features."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from trainonce.errors import PrunerError

STATE = "trainonce"
"""Where the optimizer's state in `last.pt` has the pruner's, and where a yaml has what was taken out of it.

Ultralytics drops the optimizer's state from both files at the end of a run, and with it the pruner's.
"""

REFUSAL = (
    "this model was pruned by trainonce, so its sizes differ from its yaml: to train it further, use "
    "keep_size or prune of trainonce.integrations.ultralytics"
)
"""Stands for the first layer in a small model's yaml, where Ultralytics' parser stumbles over it.

Without it, `train` would build a dense model from the yaml, and not a word about it.
"""


def is_marked(yaml: Any) -> bool:
    """Whether this is the yaml of a model from a run with trainonce."""
    return isinstance(yaml, dict) and STATE in yaml


def trainable(small: Any, *, num_classes: int) -> nn.Module:
    """A copy of a checkpoint's model, ready to be trained on these many classes."""
    if small is None or not is_marked(small.yaml):
        raise PrunerError("pretrained= would replace this model with one of other sizes. Leave it out.")
    if small.is_fused():
        raise PrunerError("this model is fused for inference and can't be trained. Load the file again.")
    if small.yaml["nc"] != num_classes:
        raise PrunerError(
            f"this model has {small.yaml['nc']} classes and the data has {num_classes}, "
            "so it would need a new head. Train on data with the same classes."
        )
    model = copy.deepcopy(small).float().requires_grad_(True)
    # The head keeps what it has computed for the last image's size.
    vars(model.model[-1]).pop("shape", None)
    return model


def marked(yaml: dict[str, Any]) -> dict[str, Any]:
    """A yaml that Ultralytics refuses to build a model from, with the reason in the error."""
    if is_marked(yaml):
        return yaml
    (source, count, name, *rest), *others = yaml["backbone"]
    return {**yaml, "backbone": [[source, count, REFUSAL, *rest], *others], STATE: name}


def unmarked(yaml: dict[str, Any]) -> dict[str, Any]:
    """The yaml as it was before `marked`."""
    plain = copy.deepcopy(yaml)
    plain["backbone"][0][2] = plain.pop(STATE, plain["backbone"][0][2])
    return plain


@contextmanager
def without_features(model: nn.Module) -> Iterator[None]:
    """Inside, detectors called with images don't hand out the features that their heads read.

    They are there for their shapes, and no output that must keep its channels. Losses call `forward` itself.
    """
    hook = model.register_forward_hook(
        lambda _, args, output: _stripped(output) if args and isinstance(args[0], Tensor) else output
    )
    try:
        yield
    finally:
        hook.remove()


def _stripped(output: Any) -> Any:
    if isinstance(output, dict):
        return {key: _stripped(item) for key, item in output.items() if key != "feats"}
    return type(output)(map(_stripped, output)) if type(output) in (tuple, list) else output
