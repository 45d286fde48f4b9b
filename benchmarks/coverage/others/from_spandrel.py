"""Architectures for super-resolution and restoration that spandrel knows."""

from __future__ import annotations

from spandrel.architectures.ESRGAN import ESRGAN
from spandrel.architectures.NAFNet import NAFNet
from spandrel.architectures.PLKSR import PLKSR
from spandrel.architectures.RCAN import RCAN
from spandrel.architectures.SAFMN import SAFMN
from spandrel.architectures.SPAN import SPAN
from spandrel.architectures.SwinIR import SwinIR

from benchmarks.coverage.others.catalogue import Built, image

_SIZE = 16


def _esrgan() -> Built:
    return ESRGAN(num_filters=32, num_blocks=2), image(size=_SIZE)


def _span() -> Built:
    return SPAN(num_in_ch=3, num_out_ch=3, feature_channels=32), image(size=_SIZE)


def _swin_ir() -> Built:
    model = SwinIR(
        img_size=_SIZE,
        embed_dim=32,
        depths=[2, 2],
        num_heads=[4, 4],
        window_size=8,
        mlp_ratio=2.0,
        upscale=2,
        upsampler="pixelshuffle",
    )
    return model, image(size=_SIZE)


def _plksr() -> Built:
    return PLKSR(dim=32, n_blocks=3, kernel_size=7, upscaling_factor=2), image(size=_SIZE)


def _safmn() -> Built:
    return SAFMN(dim=32, n_blocks=2, upscaling_factor=2), image(size=_SIZE)


def _nafnet() -> Built:
    return NAFNet(width=16, middle_blk_num=1, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1]), image(size=_SIZE)


def _rcan() -> Built:
    return RCAN(n_resgroups=2, n_resblocks=2, n_feats=32, scale=2), image(size=_SIZE)


MODELS = {
    "ESRGAN": _esrgan,
    "SPAN": _span,
    "SwinIR": _swin_ir,
    "PLKSR": _plksr,
    "SAFMN": _safmn,
    "NAFNet": _nafnet,
    "RCAN": _rcan,
}
