"""Vision transformers of vit-pytorch, which take their heads apart with einops."""

from __future__ import annotations

from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cross_vit import CrossViT
from vit_pytorch.cvt import CvT
from vit_pytorch.levit import LeViT
from vit_pytorch.mobile_vit import MobileViT
from vit_pytorch.pit import PiT

from benchmarks.coverage.others.catalogue import Built, image


def _vit() -> Built:
    model = ViT(
        image_size=32, patch_size=8, num_classes=10, dim=64, depth=2, heads=4, dim_head=16, mlp_dim=256
    )
    return model, image(size=32)


def _simple_vit() -> Built:
    model = SimpleViT(
        image_size=32, patch_size=8, num_classes=10, dim=64, depth=2, heads=4, dim_head=16, mlp_dim=256
    )
    return model, image(size=32)


def _cvt() -> Built:
    model = CvT(
        num_classes=10,
        s1_emb_dim=32,
        s2_emb_dim=48,
        s2_heads=2,
        s2_depth=1,
        s3_emb_dim=64,
        s3_heads=2,
        s3_depth=1,
    )
    return model, image()


def _levit() -> Built:
    model = LeViT(
        image_size=64, num_classes=10, stages=2, dim=(64, 96), depth=1, heads=(2, 3), mlp_mult=2, dropout=0.1
    )
    return model, image()


def _mobile_vit() -> Built:
    channels = [16, 16, 24, 24, 32, 32, 48, 48, 64, 64, 96]
    return MobileViT((64, 64), dims=[48, 64, 80], channels=channels, num_classes=10), image()


def _pit() -> Built:
    model = PiT(
        image_size=32, patch_size=8, num_classes=10, dim=32, depth=(1, 1), heads=2, dim_head=16, mlp_dim=64
    )
    return model, image(size=32)


def _cross_vit() -> Built:
    model = CrossViT(
        image_size=64,
        num_classes=10,
        sm_dim=32,
        lg_dim=64,
        sm_patch_size=16,
        lg_patch_size=32,
        sm_enc_depth=1,
        sm_enc_heads=2,
        sm_enc_mlp_dim=64,
        sm_enc_dim_head=16,
        lg_enc_depth=1,
        lg_enc_heads=2,
        lg_enc_mlp_dim=128,
        lg_enc_dim_head=32,
        cross_attn_depth=1,
        cross_attn_heads=2,
        cross_attn_dim_head=16,
        depth=1,
    )
    return model, image()


MODELS = {
    "ViT": _vit,
    "SimpleViT": _simple_vit,
    "CvT": _cvt,
    "LeViT": _levit,
    "MobileViT": _mobile_vit,
    "PiT": _pit,
    "CrossViT": _cross_vit,
}
