"""The zoo's own models have the published cost, and what is asked for is what is built."""

import pytest
import torch

import trainonce
from trainonce.errors import UnknownModelError
from trainonce.zoo.from_cifar import MODELS
from trainonce.zoo.residual import thin_resnet
from trainonce.zoo.sources import Build, build

PUBLISHED = {
    # Multiply-adds and parameters in millions. He et al. (2015), table 6, for the parameters of the thin
    # ones; HRank (CVPR 2020),
    # table 1, for the 125.49 M of ResNet-56; 0.56 G and 11.17 M are the usual figures of ResNet-18 on CIFAR.
    "resnet20": (40.6, 0.27),
    "resnet32": (68.9, 0.46),
    "resnet44": (97.2, 0.66),
    "resnet56": (125.49, 0.85),
    "resnet110": (252.9, 1.7),
    "resnet18": (555.4, 11.17),
    "resnet34": (1159.4, 21.28),
    "mobilenet_v2": (88.0, 2.24),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_cost_is_the_published_one(name: str):
    source = build(f"cifar:{name}")
    partition = trainonce.inspect(source.model, source.example)
    macs, parameters = PUBLISHED[name]
    assert partition.macs / 1e6 == pytest.approx(macs, rel=0.005)
    assert partition.num_parameters / 1e6 == pytest.approx(parameters, rel=0.02)
    assert partition.prunable_macs > 0.9 * partition.macs


def test_every_model_is_checked():
    assert set(PUBLISHED) == set(MODELS)


@pytest.mark.parametrize(
    "name",
    ["cifar:resnet20", "cifar:mobilenet_v2", "torchvision:resnet18", "torchvision:vit_b_16", "timm:resnet18"],
)
def test_classes_and_size_are_those_asked_for(name: str):
    source = build(name, wanted=Build(num_classes=7, image_size=48))
    assert isinstance(source.example, torch.Tensor)
    assert source.example.shape == (1, 3, 48, 48)
    with torch.no_grad():
        assert source.model(source.example).shape == (1, 7)


@pytest.mark.parametrize("name", ["cifar:resnet20", "transformers:BertModel"])
def test_what_a_source_can_not_give_is_refused(name: str):
    with pytest.raises(UnknownModelError):
        build(name, wanted=Build(pretrained=True))


def test_near_names_are_suggested():
    with pytest.raises(UnknownModelError, match="resnet56"):
        build("cifar:resnet55")


def test_a_depth_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="6n"):
        thin_resnet(21, 10)
