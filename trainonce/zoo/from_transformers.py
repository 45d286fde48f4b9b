"""Models of transformers by class name, such as `LlamaForCausalLM`, built from a small config.

They are much smaller than released models, but their channels are tied in the same way.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from trainonce.errors import UnknownModelError
from trainonce.messages.plain_text import in_one_line, kind_and_reason
from trainonce.storage.artifact.about import About
from trainonce.zoo.inputs import draw_image, draw_tokens
from trainonce.zoo.sources import Build, Source, refuse_name

_WIDTH = 64
_FEED_FORWARD = 256
_HEADS = 4
_LAYERS = 2
_POSITIONS = 64
_TOKENS = 16
_LARGEST_MODEL = 50_000_000

_SMALL_SIZES = {
    **dict.fromkeys(
        (
            "hidden_size",
            "d_model",
            "n_embd",
            "dim",
            "word_embed_proj_dim",
            "embedding_size",
            "pooler_output_size",
        ),
        _WIDTH,
    ),
    **dict.fromkeys(
        (
            "intermediate_size",
            "ffn_dim",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
            "d_ff",
            "hidden_dim",
            "n_inner",
        ),
        _FEED_FORWARD,
    ),
    **dict.fromkeys(
        (
            "num_hidden_layers",
            "num_layers",
            "n_layer",
            "n_layers",
            "encoder_layers",
            "decoder_layers",
            "num_decoder_layers",
        ),
        _LAYERS,
    ),
    **dict.fromkeys(
        (
            "num_attention_heads",
            "num_heads",
            "n_head",
            "n_heads",
            "encoder_attention_heads",
            "decoder_attention_heads",
        ),
        _HEADS,
    ),
    **dict.fromkeys(("head_dim", "d_kv", "rotary_dim", "projection_dim", "num_mel_bins"), _WIDTH // _HEADS),
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "max_source_positions", "max_target_positions"), _POSITIONS
    ),
    "num_key_value_heads": _HEADS // 2,
    "vocab_size": 128,
    "embed_dim": _WIDTH // 2,
    "image_size": 32,
    "window_size": 4,
    "num_frames": 4,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "num_stages": 2,
    "num_encoder_blocks": 2,
    "moe_intermediate_size": _WIDTH,
}
_LARGEST_SIZES = {"patch_size": 8}
_STAGE_SIZES = {"depths": [2, 2], "num_heads": [2, 4], "hidden_sizes": [32, 64], "embed_dims": [32, 64]}
_SPECIAL_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def build_model(name: str, wanted: Build) -> Source:
    """A model with two layers and random weights, and keyword inputs that it accepts."""
    source = f"transformers:{name}"
    if wanted != Build():
        raise UnknownModelError(
            f"{source} is built from a small config, for trainonce inspect only. {_OWN_FUNCTION}"
        )
    model_class, config_class = _classes(name)
    try:
        config = config_class(**_shrink_sizes(config_class()), use_cache=False)
        with torch.device("meta"):
            num_parameters = sum(parameter.numel() for parameter in model_class(config).parameters())
        if num_parameters > _LARGEST_MODEL:
            raise UnknownModelError(
                f"{source} has {num_parameters:,} parameters even with a small config. {_OWN_FUNCTION}"
            )
        model = model_class(config).eval()
    except UnknownModelError:
        raise
    except Exception as error:
        raise UnknownModelError(
            f"{source} can't be built from a small config ({kind_and_reason(error)}). {_OWN_FUNCTION}"
        ) from error
    return Source(name=source, model=model, example=_accepted_example(source, model))


def rebuild_model(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The model of a config that it carried, with random weights."""
    model_class, config_class = _classes(name)
    config = arguments.get("config")
    if set(arguments) != {"config"} or not isinstance(config, Mapping):
        raise UnknownModelError(f"transformers:{in_one_line(name, 60)} is built from its config alone.")
    built = config_class.from_dict(_harmless(config))
    if getattr(built, "use_pretrained_backbone", False):
        built.use_pretrained_backbone = False
    return model_class(built)


def origins_of(model: Any) -> list[About]:
    """The class and the config of a model of transformers; nothing for a class from elsewhere."""
    name = type(model).__name__
    if getattr(transformers, name, None) is not type(model):
        return []
    config = json.loads(model.config.to_json_string(use_diff=False))
    return [About(name=f"transformers:{name}", arguments={"config": _harmless(config)})]


_REFUSED = re.compile(
    r"_.*|auto_map|trust_remote_code|use_kernels|quantization_config|.*_implementation|transformers_version"
)
"""Keys of a config that choose code or formats, which a file must not do."""


def _harmless(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what loads something: other people's code, or weights from the network."""
    kept = {
        name: _harmless(value) if isinstance(value, Mapping) else value
        for name, value in config.items()
        if not _REFUSED.fullmatch(name)
    }
    if ":" in str(kept.get("backbone")) or "/" in str(kept.get("backbone")):
        raise UnknownModelError(
            f"its backbone {in_one_line(kept['backbone'], 60)} is not from transformers itself."
        )
    return kept | ({"use_pretrained_backbone": False} if "use_pretrained_backbone" in kept else {})


def _classes(name: str) -> tuple[Any, Any]:
    """A model class of transformers and the class of its config."""
    source = f"transformers:{name}"
    if name not in dir(transformers):
        raise refuse_name(source, model_names())
    model_class = getattr(transformers, name)
    config_class = getattr(model_class, "config_class", None)
    if config_class is None or not (inspect.isclass(model_class) and issubclass(model_class, nn.Module)):
        raise UnknownModelError(
            f"{source} is not a model class with a config. Use a model class, such as transformers:BertModel."
        )
    return model_class, config_class


_OWN_FUNCTION = "Write a function that builds it, and pass that: module.path:function --input SHAPE."


def model_names() -> list[str]:
    """The names of classes that may be models."""
    endings = (
        "Config",
        "Processor",
        "Tokenizer",
        "TokenizerFast",
        "Extractor",
        "Output",
        "Pipeline",
        "Callback",
    )
    return [name for name in dir(transformers) if name[:1].isupper() and not name.endswith(endings)]


def _shrink_sizes(config: Any) -> dict[str, Any]:
    """Settings that make a config small; derived sizes are left to it."""
    sub_configs = {
        name for name in getattr(config, "sub_configs", {}) if getattr(config, name, None) is not None
    }
    settings: dict[str, Any] = {name: _shrink_sizes(getattr(config, name)) for name in sub_configs}
    fields = {name: value for name, value in config.to_dict().items() if name not in sub_configs}
    num_stages = len(fields["depths"]) if isinstance(fields.get("depths"), list) else 0
    for name, value in fields.items():
        if isinstance(value, list) and num_stages and len(value) == num_stages:
            settings[name] = _STAGE_SIZES.get(name, value[:2])
        elif num_stages and name in ("num_layers", "hidden_size"):
            continue
        elif name in _SMALL_SIZES and (value is None or isinstance(value, int)):
            settings[name] = _SMALL_SIZES[name]
        elif name in _LARGEST_SIZES and isinstance(value, int):
            settings[name] = min(value, _LARGEST_SIZES[name])
        elif name.endswith("_token_id") and isinstance(value, int) and value >= _SMALL_SIZES["vocab_size"]:
            settings[name] = _SPECIAL_TOKENS.get(name, 3)
    return settings


def _accepted_example(source: str, model: nn.Module) -> dict[str, Tensor]:
    error: Exception | None = None
    for example in _possible_examples(model):
        try:
            with torch.no_grad():
                model(**example)
            return example
        except Exception as refusal:
            error = error or refusal
    reason = (
        kind_and_reason(error) if error else f"its main input is {getattr(model, 'main_input_name', None)!r}"
    )
    raise UnknownModelError(
        f"there is no known example for {source} ({reason}). Pass its inputs, such as --input "
        "input_ids=1x16:int."
    )


def _possible_examples(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    accepted = inspect.signature(model.forward).parameters
    config: Any = model.config
    main = str(model.main_input_name)
    main_input = _draw_input(main, config)
    if main_input is None:
        return
    inputs = {main: main_input}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in accepted:
        inputs["decoder_input_ids"] = draw_tokens(1, _TOKENS, vocabulary=_vocabulary(config))
    yield inputs
    for other in ("input_ids", "pixel_values", "input_values", "input_features"):
        extra = _draw_input(other, config)
        if other in accepted and other != main and extra is not None:
            yield {**inputs, other: extra}


def _draw_input(name: str, config: Any) -> Tensor | None:
    """A tensor for one of the common inputs of transformers models; None for any other."""
    if name == "input_ids":
        return draw_tokens(1, _TOKENS, vocabulary=_vocabulary(config))
    if name == "pixel_values":
        vision = getattr(config, "vision_config", None) or config
        size = getattr(vision, "image_size", 64)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        frames = (vision.num_frames,) if hasattr(vision, "num_frames") else ()
        return draw_image(1, *frames, getattr(vision, "num_channels", 3), height, width)
    if name == "input_features" and hasattr(config, "max_source_positions"):
        # Whisper halves the frames before it adds position embeddings.
        return draw_image(1, config.num_mel_bins, 2 * config.max_source_positions)
    if name == "input_values":
        return (
            draw_image(1, config.max_length, config.num_mel_bins)
            if hasattr(config, "num_mel_bins")
            else draw_image(1, 2000)
        )
    return None


def _vocabulary(config: Any) -> int:
    text = getattr(config, "text_config", None) or config
    return getattr(text, "vocab_size", _SMALL_SIZES["vocab_size"])
