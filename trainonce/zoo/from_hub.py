"""Image classifiers of the Hugging Face hub, or of a folder of the same form: `transformers:OWNER/NAME`.

Only safetensors and a configuration are read; code that a repository brings along is not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import transformers
from transformers.utils import logging as progress

from trainonce.errors import UnknownModelError, WeightsError
from trainonce.messages.plain_text import in_one_line, kind_and_reason
from trainonce.zoo.head import NewHead
from trainonce.zoo.inputs import draw_image
from trainonce.zoo.sources import Build, Source, downloading

_SMALLEST_SIZE = 32


def build_model(name: str, wanted: Build) -> Source:
    """An image classifier with its pretrained weights, or with random ones and the same configuration."""
    source = f"transformers:{name}"
    try:
        with downloading(source), _quiet():
            config: Any = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
            model, new_head = _made(name, config, wanted)
    except WeightsError:
        raise
    except Exception as error:
        raise UnknownModelError(
            f"{in_one_line(source, 120)} can't be built as an image classifier ({kind_and_reason(error)})."
        ) from None
    size = wanted.image_size or getattr(config, "image_size", None) or 224
    size = max(size) if isinstance(size, list | tuple) else max(size, _SMALLEST_SIZE)
    example = draw_image(1, getattr(config, "num_channels", 3), size, size)
    return Source(name=source, model=model.eval(), example=example, new_head=new_head)


def _made(name: str, config: Any, wanted: Build) -> tuple[Any, NewHead | None]:
    before = config.num_labels
    if wanted.num_classes not in (None, before):
        config.num_labels = wanted.num_classes
    kind = transformers.AutoModelForImageClassification
    if not wanted.loads:
        return kind.from_config(config, trust_remote_code=False), None
    model, found = kind.from_pretrained(
        name,
        config=config,
        ignore_mismatched_sizes=True,
        use_safetensors=True,
        output_loading_info=True,
        trust_remote_code=False,
    )
    others = sorted({key[0].rpartition(".")[0] for key in found["mismatched_keys"]})
    if found["missing_keys"]:
        first, *rest = sorted(found["missing_keys"])
        raise WeightsError(
            f"the pretrained weights of transformers:{name} lack {in_one_line(first, 80)} and {len(rest)} "
            "more. Choose a checkpoint of an image classifier."
        )
    return model, NewHead(tuple(others), before, config.num_labels) if others else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's own bars and tables: the first lines of a run say what is new."""
    level = progress.get_verbosity()
    had_bars = progress.is_progress_bar_enabled()
    progress.set_verbosity_error()
    progress.disable_progress_bar()
    try:
        yield
    finally:
        progress.set_verbosity(level)
        if had_bars:
            progress.enable_progress_bar()
