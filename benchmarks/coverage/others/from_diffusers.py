"""U-nets, autoencoders and diffusion transformers of diffusers, from small configs."""

from __future__ import annotations

import diffusers
import torch

from benchmarks.coverage.others.catalogue import Built, image

_BATCH = 2
_TIMES = torch.tensor([3, 8])
_WIDTHS = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}


def _unet() -> Built:
    model = diffusers.UNet2DModel(
        sample_size=16,
        **_WIDTHS,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return model, {"sample": image(size=16), "timestep": _TIMES}


def _conditioned_unet() -> Built:
    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        **_WIDTHS,
        cross_attention_dim=32,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    text = torch.randn(_BATCH, 5, 32)
    return model, {
        "sample": image(channels=4, size=16),
        "timestep": _TIMES,
        "encoder_hidden_states": text,
    }


def _autoencoder() -> Built:
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    return diffusers.AutoencoderKL(**_WIDTHS, **blocks, sample_size=32), {"sample": image(size=32)}


def _tiny_autoencoder() -> Built:
    model = diffusers.AutoencoderTiny(
        encoder_block_out_channels=(32, 32),
        decoder_block_out_channels=(32, 32),
        num_encoder_blocks=(1, 2),
        num_decoder_blocks=(2, 1),
    )
    return model, {"sample": image(size=32)}


def _dit() -> Built:
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, num_layers=2, sample_size=8, norm_num_groups=4
    )
    return model, {
        "hidden_states": image(channels=4, size=8),
        "timestep": _TIMES,
        "class_labels": torch.tensor([1, 2]),
    }


def _sd3() -> Built:
    model = diffusers.SD3Transformer2DModel(
        sample_size=8,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=64,
        pooled_projection_dim=32,
        in_channels=4,
        out_channels=4,
        pos_embed_max_size=8,
    )
    return model, {
        "hidden_states": image(channels=4, size=8),
        "encoder_hidden_states": torch.randn(_BATCH, 5, 32),
        "pooled_projections": torch.randn(_BATCH, 32),
        "timestep": _TIMES,
    }


def _flux() -> Built:
    model = diffusers.FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    return model, {
        "hidden_states": torch.randn(_BATCH, 16, 4),
        "encoder_hidden_states": torch.randn(_BATCH, 5, 32),
        "pooled_projections": torch.randn(_BATCH, 32),
        "timestep": _TIMES / 10,
        "img_ids": torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0)),
        "txt_ids": torch.zeros(5, 3),
    }


def _sana() -> Built:
    model = diffusers.SanaTransformer2DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=4,
        attention_head_dim=16,
        num_layers=2,
        num_cross_attention_heads=4,
        cross_attention_head_dim=16,
        cross_attention_dim=64,
        caption_channels=32,
        sample_size=8,
    )
    return model, {
        "hidden_states": image(channels=4, size=8),
        "encoder_hidden_states": torch.randn(_BATCH, 5, 32),
        "timestep": _TIMES,
    }


def _wan() -> Built:
    model = diffusers.WanTransformer3DModel(
        num_attention_heads=4,
        attention_head_dim=16,
        in_channels=4,
        out_channels=4,
        text_dim=32,
        freq_dim=32,
        ffn_dim=128,
        num_layers=2,
        rope_max_seq_len=32,
    )
    return model, {
        "hidden_states": torch.randn(_BATCH, 4, 2, 8, 8),
        "encoder_hidden_states": torch.randn(_BATCH, 5, 32),
        "timestep": _TIMES,
    }


MODELS = {
    "UNet2DModel": _unet,
    "UNet2DConditionModel": _conditioned_unet,
    "AutoencoderKL": _autoencoder,
    "AutoencoderTiny": _tiny_autoencoder,
    "DiTTransformer2DModel": _dit,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
    "SanaTransformer2DModel": _sana,
    "WanTransformer3DModel": _wan,
}
