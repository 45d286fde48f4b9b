"""Encoders of SpeechBrain."""

from __future__ import annotations

import torch
from speechbrain.lobes.models.CRDNN import CRDNN
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
from speechbrain.lobes.models.Xvector import Xvector
from speechbrain.nnet.attention import RelPosEncXL
from torch import Tensor, nn

from benchmarks.coverage.others.catalogue import Built

_FEATURES = 32


def _frames(length: int = 40) -> Tensor:
    return torch.randn(2, length, _FEATURES)


def _ecapa() -> Built:
    model = ECAPA_TDNN(
        _FEATURES,
        lin_neurons=32,
        channels=[64, 64, 64, 64, 192],
        kernel_sizes=[5, 3, 3, 3, 1],
        dilations=[1, 2, 3, 4, 1],
        attention_channels=32,
        res2net_scale=4,
        se_channels=32,
    )
    return model, _frames()


def _xvector() -> Built:
    model = Xvector(
        in_channels=_FEATURES,
        tdnn_blocks=4,
        tdnn_channels=[64, 64, 64, 128],
        tdnn_kernel_sizes=[5, 3, 3, 1],
        tdnn_dilations=[1, 2, 3, 1],
        lin_neurons=32,
    )
    return model, _frames()


def _crdnn() -> Built:
    model = CRDNN(
        input_shape=[2, 40, _FEATURES],
        cnn_blocks=2,
        cnn_channels=(16, 32),
        rnn_layers=2,
        rnn_neurons=32,
        dnn_blocks=2,
        dnn_neurons=64,
    )
    return model, _frames()


class _WithPositions(nn.Module):
    """SpeechBrain's Conformer takes the positions beside its input."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = RelPosEncXL(_FEATURES)
        self.encoder = ConformerEncoder(2, _FEATURES, 64, 4, kernel_size=7)

    def forward(self, frames: Tensor) -> Tensor:
        return self.encoder(frames, pos_embs=self.positions(frames))[0]


def _conformer() -> Built:
    return _WithPositions(), _frames()


MODELS = {
    "ECAPA_TDNN": _ecapa,
    "Xvector": _xvector,
    "CRDNN": _crdnn,
    "Conformer": _conformer,
}
