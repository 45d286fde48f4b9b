"""The last layer of a classifier, re-initialized where pretrained weights have another number of classes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from trainonce.messages.plain_text import in_one_line


@dataclass(frozen=True, slots=True)
class NewHead:
    """A last layer with weights of its own: the pretrained one has another number of outputs."""

    names: tuple[str, ...]
    before: int
    after: int

    def __str__(self) -> str:
        """Such as `new head fc: 10 outputs instead of 1000`."""
        names = ", ".join(in_one_line(name, 80) for name in self.names)
        return f"new head {names}: {self.after} outputs instead of {self.before}"


def replace_head(model: nn.Module, num_classes: int, *, before: int) -> NewHead | None:
    """Replace the last layer with `before` outputs by a new one; None if there is no such layer."""
    for path, layer in reversed(list(model.named_modules())):
        if isinstance(layer, nn.Linear) and layer.out_features == before:
            made: nn.Module = nn.Linear(layer.in_features, num_classes, bias=layer.bias is not None)
        elif isinstance(layer, nn.Conv2d) and layer.out_channels == before and layer.groups == 1:
            size, has_bias = layer.kernel_size, layer.bias is not None
            made = nn.Conv2d(layer.in_channels, num_classes, (size[0], size[1]), bias=has_bias)
        else:
            continue
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, made)
        return NewHead((path,), before, num_classes)
    return None
