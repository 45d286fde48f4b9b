"""Whether a model's weights are spread over processes, so that none has whole tensors to cut."""

from __future__ import annotations

from torch import nn

_WAYS = {"FullyShardedDataParallel": "FullyShardedDataParallel", "FSDPModule": "fully_shard"}
"""Classes of torch.distributed, and what a user has called to get them."""


def refusal_of_shards(model: nn.Module) -> str | None:
    """Why a sharded model can't be pruned, and what works instead; None for any other model."""
    for module in model.modules():
        for parent in type(module).__mro__:
            if parent.__name__ in _WAYS and parent.__module__.startswith("torch.distributed."):
                return _words(_WAYS[parent.__name__])
    # Tensor parallelism, and what is left of fully_shard in a module that was taken out.
    if any(type(parameter.data).__name__ == "DTensor" for parameter in model.parameters()):
        return _words("torch.distributed.tensor")
    return None


def _words(way: str) -> str:
    return (
        f"this model is sharded by {way}: no process has whole weights to cut. Train it with "
        "DistributedDataParallel, or prune it on one process first and shard the small model."
    )
