"""Small models of other people's families: takes the name of a family, gives a model and an example.

The sizes are small, but their proportions are those of real models: the width is large beside what stays
(classes, vocabulary), so that the share that remains says what the rules can reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import timm
import torch
import transformers
from torch import Tensor, nn
from torchvision import models, ops

from trainonce.structure.channels import Example

Built = tuple[nn.Module, Example]

_DECODER: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 96, "num_experts": 4}
_LATENT: dict[str, Any] = {
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "num_key_value_heads": 8,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
_ENCODER: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
}


@dataclass(frozen=True, slots=True)
class Family:
    """One row: how the model is built, and how little may remain of its FLOPs."""

    name: str
    build: Callable[[], Built]
    at_most: float | None = None
    """None where nothing was promised."""

    streams: bool = False
    """Whether channels under a LayerNorm may go."""


def _decoder(name: str, *, at_most: float | None, **settings: Any) -> Family:
    def build() -> Built:
        config = getattr(transformers, f"{name}Config")(**_DECODER | settings)
        model = getattr(transformers, f"{name}ForCausalLM")(config)
        return model, {"input_ids": torch.arange(12).reshape(1, 12) + 1, "use_cache": False}

    return Family(name, build, at_most)


def _vision(name: str, kind: str, *, at_most: float | None = None, **settings: Any) -> Family:
    def build() -> Built:
        config = getattr(transformers, f"{name}Config")(image_size=32, patch_size=8, **_ENCODER | settings)
        return getattr(transformers, kind)(config), {"pixel_values": torch.randn(1, 3, 32, 32)}

    return Family(name, build, at_most)


def _gemma3() -> Built:
    config = transformers.Gemma3TextConfig(**_DECODER | {"head_dim": 8, "query_pre_attn_scalar": 8})
    return transformers.Gemma3ForCausalLM(config), {
        "input_ids": torch.arange(12).reshape(1, 12) + 1,
        "use_cache": False,
    }


def _bert() -> Built:
    config = transformers.BertConfig(vocab_size=128, max_position_embeddings=64, **_ENCODER)
    return transformers.BertForSequenceClassification(config), {
        "input_ids": torch.arange(12).reshape(1, 12) + 1
    }


def _nn_transformer() -> Built:
    model = nn.Transformer(64, 8, 2, 2, 256, batch_first=True)
    return model, (torch.randn(2, 6, 64), torch.randn(2, 5, 64))


class _ClipTower(nn.Module):
    """A vision tower as open_clip builds it: nn.MultiheadAttention with the tokens first."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 8, 8, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(4))
        self.attentions = nn.ModuleList(nn.MultiheadAttention(64, 8, batch_first=True) for _ in range(2))
        self.hidden = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(2)
        )
        self.head = nn.Linear(64, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image).flatten(2).transpose(1, 2)
        for layer in range(2):
            y = self.norms[2 * layer](x)
            x = x + self.attentions[layer](y, y, y, need_weights=False)[0]
            x = x + self.hidden[layer](self.norms[2 * layer + 1](x))
        return self.head(x.mean(1))


def _open_clip() -> Built:
    from open_clip import transformer

    return transformer.VisionTransformer(32, 8, 64, 2, 8, 4.0, output_dim=16), torch.randn(1, 3, 32, 32)


def _torchvision() -> Built:
    return models.VisionTransformer(32, 8, 2, 8, 64, 256, num_classes=10), torch.randn(1, 3, 32, 32)


class _Headed(nn.Module):
    """A backbone and a linear head on what it pools: without one, the stream is the model's output."""

    def __init__(self, backbone: nn.Module, width: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, 10)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.head(self.backbone(pixel_values).pooler_output)


def _dinov3_with_head() -> Built:
    backbone, example = _vision("DINOv3ViT", "DINOv3ViTModel").build()
    return _Headed(backbone, 64), example


def _detr() -> Built:
    backbone = transformers.ResNetConfig(
        depths=[1, 1, 1, 1],
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        backbone_config=backbone,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=256,
        decoder_ffn_dim=256,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        num_queries=8,
    )
    return transformers.DetrForObjectDetection(config), {"pixel_values": torch.randn(1, 3, 64, 64)}


def _frozen_norms() -> Built:
    model = models.resnet18(norm_layer=ops.FrozenBatchNorm2d, num_classes=10)
    return model, torch.randn(1, 3, 64, 64)


def _timm(name: str, *, at_most: float | None, size: int = 64, **settings: Any) -> Family:
    def build() -> Built:
        model = timm.create_model(name, num_classes=10, **settings)
        return model, torch.randn(1, 3, size, size)

    words = "".join(f", {key} {value}" for key, value in settings.items())
    return Family(f"timm {name}{words}", build, at_most)


FAMILIES: tuple[Family, ...] = (
    _decoder("Llama", at_most=0.10),
    _decoder("Qwen3", at_most=0.10, head_dim=8),
    Family("Gemma3", _gemma3, 0.10),
    _decoder("Phi3", at_most=0.10),
    _decoder("Mixtral", at_most=0.15, num_local_experts=4, num_experts_per_tok=2),
    _decoder("Qwen3Moe", at_most=0.15, head_dim=8, **_EXPERTS),
    _decoder(
        "GptOss",
        at_most=0.15,
        head_dim=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        intermediate_size=96,
    ),
    _decoder("DeepseekV3", at_most=None, **_EXPERTS | _LATENT),
    Family("BERT", _bert, 0.10),
    _vision("ViT", "ViTForImageClassification"),
    _vision("DINOv3ViT", "DINOv3ViTModel"),
    Family("nn.Transformer", _nn_transformer, 0.15),
    Family("a CLIP tower of nn.MultiheadAttention", lambda: (_ClipTower(), torch.randn(1, 3, 32, 32)), 0.15),
    Family("open_clip VisionTransformer", _open_clip, 0.15),
    Family("torchvision VisionTransformer", _torchvision, 0.15),
    _timm("convnextv2_atto", at_most=0.10),
    Family("DETR", _detr, 0.20),
    Family("ResNet-18 with frozen batch norm", _frozen_norms, 0.10),
    _timm("efficientnet_b0", at_most=None, drop_path_rate=0.2),
    _timm("resnet50", at_most=None, drop_path_rate=0.2),
    Family("BERT, streams", _bert, 0.10, streams=True),
    Family("ViT, streams", _vision("ViT", "ViTForImageClassification").build, 0.10, streams=True),
    Family("DINOv3ViT with a linear head, streams", _dinov3_with_head, 0.10, streams=True),
    Family("open_clip VisionTransformer, streams", _open_clip, 0.10, streams=True),
    Family("torchvision VisionTransformer, streams", _torchvision, 0.10, streams=True),
    Family("timm convnextv2_atto, streams", _timm("convnextv2_atto", at_most=None).build, 0.10, streams=True),
)
