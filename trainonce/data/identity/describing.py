"""Data described as plain values: shapes, names and checksums.

No sample is drawn: a data set may return another one each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_leaves, tree_leaves_with_path
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset, TensorDataset

from trainonce.data.file_names import number_of, spelled

VERSION = 1
PARTS = ("training", "validation")
MAX_HASHED_BYTES = 512 * 2**20
"""Up to this size, all image files of a split are hashed."""
NUM_SAMPLED_FILES = 1000
"""Beyond that, this many are."""
MAX_LISTED_FILES = 100_000
MAX_LISTED_CHARACTERS = 8_000_000
"""Above either, file names are hashed class by class."""
_CHUNK_BYTES = 2**22


def describe(data: Any, parts: Sequence[str] = PARTS) -> dict[str, Any]:
    """The data of `fit`, or an open data set, as plain values, with the splits in `parts`."""
    settings, classes = getattr(data, "settings", None), getattr(data, "classes", None)
    has_both = hasattr(data, "train") and hasattr(data, "validation")
    pair = (data.train, data.validation) if has_both else tuple(data)
    found: dict[str, Any] = {
        "version": VERSION,
        # A user's object may have anything under these names.
        "settings": dict(settings) if _are_plain(settings) else {},
        "classes": [spelled(name) for name in classes] if _are_texts(classes) else None,
    }
    found |= {name: describe_part(part) for name, part in zip(PARTS, pair, strict=True) if name in parts}
    # As it will be read back: tuples become lists.
    return json.loads(json.dumps(found))


def describe_part(part: Any) -> dict[str, Any]:
    """Training or validation data; its own `describe_identity()` is used if there is one."""
    own: Callable[[], dict[str, Any]] | None = getattr(part, "describe_identity", None)
    if callable(own):
        return own()
    if isinstance(part, DataLoader):
        batches: Any = part.batch_sampler
        sampler = batches.sampler if type(batches) is BatchSampler else part.sampler
        return _describe_visit(sampler, describe_part(part.dataset))
    if isinstance(part, Subset):
        return _chosen(part.indices, describe_part(part.dataset))
    if isinstance(part, ConcatDataset):
        return {"kind": "joined", "count": len(part), "of": [describe_part(one) for one in part.datasets]}
    if isinstance(part, TensorDataset):
        return describe_tensors(part.tensors)
    if isinstance(part, tuple | list) and all(isinstance(tensor, Tensor) for tensor in part):
        return describe_tensors(part)
    if (
        isinstance(part, tuple | list)
        and len(part) == 2
        and all(isinstance(leaf, Tensor) for leaf in tree_leaves(part))
    ):
        return _describe_trees(*part)
    return _describe_torchvision(part) or {
        "kind": "other",
        "count": len(part) if hasattr(part, "__len__") else None,
    }


def describe_tensors(tensors: Sequence[Tensor]) -> dict[str, Any]:
    """Shape, dtype and sha256 of each; the first are the inputs, the second the targets."""
    names = ["inputs", "targets", *(f"tensor {number}" for number in range(2, len(tensors)))][: len(tensors)]
    return _describe_named(dict(zip(names, tensors, strict=True)))


def _describe_trees(inputs: Any, targets: Any) -> dict[str, Any]:
    """The same for tuples and dicts of tensors, each tensor under its place: inputs['mask'], targets[0]."""
    trees = {"inputs": inputs, "targets": targets}
    return _describe_named(
        {
            f"{name}{keystr(place)}": tensor
            for name, tree in trees.items()
            for place, tensor in tree_leaves_with_path(tree)
        }
    )


def _describe_named(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    found = {
        name: {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "digest": _digest_tensor(tensor),
        }
        for name, tensor in tensors.items()
    }
    first = next(iter(tensors.values()), None)
    return {
        "kind": "tensors",
        "count": len(first) if first is not None and first.dim() else 0,
        "tensors": found,
    }


def describe_files(root: Path, names: Sequence[str], labels: Sequence[int], *, count: int) -> dict[str, Any]:
    """Names, sizes and checksums of files by class, which is the first folder in a name.

    `count` is the number of samples in them. All files are hashed up to MAX_HASHED_BYTES in total; beyond
    that, a fixed choice of NUM_SAMPLED_FILES is, and the others count by name and size.
    """
    sizes = [_size(root / name) for name in names]
    total = sum(size for size in sizes if size is not None)
    digests = _digest_files(root, names, sizes, is_sampled=total > MAX_HASHED_BYTES)
    classes: dict[str, dict[str, list[Any]]] = {}
    order = hashlib.sha256()
    for name, size, label in zip(names, sizes, labels, strict=True):
        order.update(f"{spelled(name)}\0{label}\0".encode("utf-8", "surrogatepass"))
        first, _, rest = spelled(name).partition("/")
        files = classes.setdefault(first, {})
        # Two names that are equal in NFC are both kept.
        files[rest if rest not in files else name.partition("/")[2]] = [size, digests.get(name)]
    is_listed = len(names) <= MAX_LISTED_FILES and sum(map(len, names)) <= MAX_LISTED_CHARACTERS
    return {
        "kind": "files",
        "count": count,
        "contents": "sampled" if total > MAX_HASHED_BYTES else "all",
        "order": order.hexdigest()[:32],
        **({"files": classes} if is_listed else {"sums": {name: _sum_up(classes[name]) for name in classes}}),
    }


def _sum_up(files: Mapping[str, list[Any]]) -> dict[str, Any]:
    content = json.dumps(sorted(files.items())).encode()
    return {
        "count": len(files),
        "bytes": sum(size or 0 for size, _ in files.values()),
        "digest": hashlib.sha256(content).hexdigest()[:32],
    }


def _digest_files(
    root: Path,
    names: Sequence[str],
    sizes: Sequence[int | None],
    *,
    is_sampled: bool,
) -> dict[str, str | None]:
    chosen: Iterable[tuple[str, int | None]] = zip(names, sizes, strict=True)
    if is_sampled:
        chosen = sorted(chosen, key=lambda found: number_of(found[0]))[:NUM_SAMPLED_FILES]
    left, found = MAX_HASHED_BYTES, {}
    for name, size in chosen:
        if size is not None and size <= left:
            left -= size
            found[name] = _digest_file(root / name)
    return found


def _digest_file(path: Path) -> str | None:
    found = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                found.update(chunk)
    except OSError:
        # It counts as a broken image, in every run alike.
        return None
    return found.hexdigest()[:16]


def _size(path: Path) -> int | None:
    """Bytes of a file; None if it is missing or not a regular file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _digest_tensor(tensor: Tensor) -> str | None:
    """The sha256 of all elements; None for tensors without plain bytes."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        return None
    found = hashlib.sha256()
    rows = tensor.detach().reshape(1, -1) if tensor.dim() == 0 else tensor.detach()
    num_rows = max(1, _CHUNK_BYTES // max(1, rows[:1].numel() * rows.element_size()))
    # In chunks: a copy of the whole tensor would double the memory.
    for piece in rows.split(num_rows) if len(rows) else ():
        plain = piece.cpu().resolve_conj().resolve_neg().contiguous()
        content: Any = plain.reshape(-1).view(torch.uint8).numpy()
        found.update(content)
    return found.hexdigest()[:32]


def _describe_visit(sampler: Any, inner: dict[str, Any]) -> dict[str, Any]:
    """What a loader visits of its data set: which samples, or how they are drawn."""
    indices = sampler if isinstance(sampler, Sequence) else getattr(sampler, "indices", None)
    if indices is not None:
        return _chosen(indices, inner)
    source = getattr(sampler, "data_source", None)
    if source is not None and len(source) != inner["count"]:
        inner = _chosen(range(len(source)), inner)
    weights, is_repeated = getattr(sampler, "weights", None), bool(getattr(sampler, "replacement", False))
    num_draws = getattr(sampler, "num_samples", inner["count"])
    if not isinstance(weights, Tensor) and not is_repeated and num_draws == inner["count"]:
        return inner
    return {
        "kind": "drawn",
        "count": num_draws,
        "replacement": is_repeated,
        "weights": _digest_tensor(weights) if isinstance(weights, Tensor) else None,
        "of": inner,
    }


def _chosen(indices: Any, inner: dict[str, Any]) -> dict[str, Any]:
    numbers = [int(number) for number in indices]
    return {
        "kind": "chosen",
        "count": len(numbers),
        "indices": hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:32],
        "of": inner,
    }


def _describe_torchvision(dataset: Any) -> dict[str, Any] | None:
    """A torchvision data set: its files, or its images in memory; None for anything else."""
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(dataset).__mro__}
    if "torchvision.VisionDataset" not in names:
        return None
    known = vars(dataset)
    samples, root, images, targets = (known.get(name) for name in ("samples", "root", "data", "targets"))
    if root is not None and _are_pairs(samples):
        names = [os.path.relpath(path, root).replace(os.sep, "/") for path, _ in samples]
        return describe_files(Path(root), names, [label for _, label in samples], count=len(samples))
    if images is None or targets is None or len(images) != len(dataset) or isinstance(images, list):
        return None
    try:
        return describe_tensors([torch.as_tensor(images), torch.as_tensor(targets)])
    except (TypeError, ValueError, RuntimeError):
        # Strings, or targets of several lengths.
        return None


def _are_pairs(values: Any) -> TypeGuard[list[tuple[Any, Any]]]:
    if not isinstance(values, list) or not values:
        return False
    return all(isinstance(one, tuple) and len(one) == 2 for one in values)


def _are_texts(values: Any) -> TypeGuard[Sequence[str]]:
    return isinstance(values, tuple | list) and all(isinstance(value, str) for value in values)


def _are_plain(values: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(values, Mapping) and _are_texts([*values]) and _is_plain([*values.values()])


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
