"""Towers of open_clip: a ViT, a ResNet with attention pooling, timm's ConvNeXt, and CoCa."""

from __future__ import annotations

from functools import partial
from typing import Any

from open_clip.coca_model import CoCa, MultimodalCfg
from open_clip.model import CLIP

from benchmarks.coverage.others.catalogue import Built, image, tokens

_TEXT = {"context_length": 12, "vocab_size": 64, "width": 64, "heads": 4, "layers": 2}
_VIT = {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8}


def _clip(size: int, **vision: Any) -> Built:
    model = CLIP(embed_dim=32, vision_cfg={"image_size": size, **vision}, text_cfg=_TEXT)
    return model, (image(size=size), tokens())


def _coca() -> Built:
    text = {**_TEXT, "embed_cls": True, "output_tokens": True, "context_length": 11}
    model = CoCa(
        embed_dim=64,
        multimodal_cfg=MultimodalCfg(width=64, context_length=11, heads=4, layers=2, vocab_size=64),
        text_cfg=text,
        vision_cfg={**_VIT, "attentional_pool": True, "attn_pooler_heads": 4, "output_tokens": True},
    )
    return model, (image(size=32), tokens(11))


MODELS = {
    "ViT": partial(_clip, 32, **{key: value for key, value in _VIT.items() if key != "image_size"}),
    "ModifiedResNet": partial(_clip, 64, layers=(1, 1, 1, 1), width=16, head_width=16),
    "ConvNeXt": partial(
        _clip, 64, timm_model_name="convnext_atto", timm_model_pretrained=False, timm_proj="linear"
    ),
    "CoCa": _coca,
}
