"""Arithmetic that stays in float64: what a model does in float32 on purpose is done in float64 as well.

Norms, rotations and softmaxes of language models turn their input into float32 whatever precision the
model has. Two ways to compute the same then differ by float32's rounding, and no proof could be closer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainonce.execution.grouping import GROUPED, grouped_in_double

_ROUGHER = frozenset({torch.float32, torch.float16, torch.bfloat16})


class InDouble(TorchDispatchMode):
    """Inside, no float64 tensor is turned into a rougher one, and new floating tensors are float64.

    Products by group, for which torch has no float64 on any device, are computed group by group.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator in float64 where it asks for less."""
        kwargs = dict(kwargs or {})
        if func in GROUPED and args[0].dtype is torch.float64:
            return grouped_in_double(*args, **kwargs)
        if kwargs.get("dtype") in _ROUGHER and _may_be_double(func, args):
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def _may_be_double(operator: Any, args: Any) -> bool:
    """Whether the operator makes a tensor from nothing, or from float64 or whole numbers."""
    given = [item for item in tree_leaves(args) if isinstance(item, Tensor)]
    return all(tensor.dtype not in _ROUGHER for tensor in given)
