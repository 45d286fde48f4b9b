"""Pretrained weights of torchvision, timm and transformers, from files of our own in their caches."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification

from trainonce.cli import main
from trainonce.errors import UnknownModelError, WeightsError
from trainonce.zoo.names import needs_trust, on_hub
from trainonce.zoo.sources import Build, build

TORCHVISION, TIMM, HUB = "torchvision:shufflenet_v2_x0_5", "timm:test_resnet", "transformers:some/resnet"
REVISION = "0" * 40


def same_body(model: nn.Module, donor: nn.Module, head: str) -> bool:
    mine, theirs = model.state_dict(), donor.state_dict()
    return mine.keys() == theirs.keys() and all(
        torch.equal(mine[name], theirs[name]) for name in mine if not name.startswith(head)
    )


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, nn.Module]:
    """Caches of the three libraries, offline, with the random weights of one model each."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    shuffle = torchvision.models.shufflenet_v2_x0_5()
    places = tmp_path / "torch" / "hub" / "checkpoints"
    places.mkdir(parents=True)
    torch.save(shuffle.state_dict(), places / "shufflenetv2_x0.5-f707e7126e.pth")
    resnet = timm.create_model("test_resnet")
    place = tmp_path / "hub" / "models--timm--test_resnet.r160_in1k"
    (place / "snapshots" / REVISION).mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(REVISION)
    save_file(resnet.state_dict(), place / "snapshots" / REVISION / "model.safetensors")
    config: Any = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=7
    )
    small = ResNetForImageClassification(config)
    small.save_pretrained(tmp_path / "some" / "resnet")
    return {TORCHVISION: shuffle, TIMM: resnet, HUB: small}


HEADS = {TORCHVISION: ("fc", 1000), TIMM: ("fc", 1000), HUB: ("classifier.1", 7)}


@pytest.mark.parametrize("name", HEADS)
def test_pretrained_weights_are_loaded_under_a_new_head(name: str, caches: dict[str, nn.Module]):
    head, before = HEADS[name]
    found = build(name, wanted=Build(num_classes=3, image_size=64, pretrained=True))
    assert str(found.new_head) == f"new head {head}: 3 outputs instead of {before}"
    assert same_body(found.model, caches[name], head)
    output = found.model(found.example)
    assert getattr(output, "logits", output).shape == (1, 3)


@pytest.mark.parametrize("name", HEADS)
def test_the_same_number_of_classes_keeps_the_head(name: str, caches: dict[str, nn.Module]):
    found = build(name, wanted=Build(num_classes=HEADS[name][1], image_size=64, pretrained=True))
    assert found.new_head is None
    assert same_body(found.model, caches[name], "nothing")


@pytest.mark.parametrize("name", HEADS)
def test_an_empty_model_has_the_same_shapes_and_no_pretrained_weights(
    name: str, caches: dict[str, nn.Module]
):
    wanted = {"num_classes": 3, "image_size": 64, "pretrained": True}
    full, empty = build(name, wanted=Build(**wanted)), build(name, wanted=Build(**wanted, is_empty=True))
    mine, theirs = full.model.state_dict(), empty.model.state_dict()
    assert {key: mine[key].shape for key in mine} == {key: theirs[key].shape for key in theirs}
    assert not same_body(empty.model, caches[name], HEADS[name][0])


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in torchvision.models.list_models(module=torchvision.models)
        if "transform_input" in inspect.signature(torchvision.models.get_model_builder(name)).parameters
        or name in ("googlenet", "inception_v3")
    ],
)
def test_what_torchvision_changes_beside_the_weights_is_changed_without_them(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    class Loaded(nn.Module):
        def load_state_dict(self, *_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(nn.Module, "load_state_dict", Loaded.load_state_dict)
    monkeypatch.setattr(torchvision.models.WeightsEnum, "get_state_dict", lambda *_, **__: {})
    wanted = {"num_classes": 1000, "pretrained": True}
    full, empty = (
        build(f"torchvision:{name}", wanted=Build(**wanted, is_empty=is_empty)).model
        for is_empty in (False, True)
    )
    assert full.transform_input == empty.transform_input is True
    assert [path for path, _ in full.named_modules()] == [path for path, _ in empty.named_modules()]


@pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:test_vit", "transformers:some/other"])
def test_a_download_that_fails_is_told_in_one_line(
    name: str, caches: dict[str, nn.Module], monkeypatch: pytest.MonkeyPatch
):
    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("torch.hub.download_url_to_file", unreachable)
    with pytest.raises(
        WeightsError, match=f"pretrained weights of {name} can't be downloaded .*--weights"
    ) as e:
        build(name, wanted=Build(num_classes=3, image_size=64, pretrained=True))
    assert str(e.value).isprintable()


def test_the_command_tells_it_in_one_line_and_leaves_nothing(
    caches: dict[str, nn.Module], capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    words = ["--model", "timm:test_vit", "--data", "digits", "--img-size", "160", "--keep-flops", "0.5"]
    assert main(["train", *words, "--pretrained", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("trainonce: the pretrained weights of timm:test_vit can't be downloaded")
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["cifar:resnet20", "torchvision:mnasnet0_75x", "timm:resnet10t.nothing"])
def test_what_has_no_pretrained_weights_is_refused(name: str):
    with pytest.raises(UnknownModelError):
        build(name, wanted=Build(num_classes=3, pretrained=True))


def test_models_of_the_hub_are_built_only_for_who_names_them(
    caches: dict[str, nn.Module], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert on_hub(HUB)
    assert needs_trust(HUB)
    assert not any(
        map(on_hub, ("transformers:BertModel", "timm:a/b", "transformers:../b", "transformers:a/b/c"))
    )
    (tmp_path / "config.yaml").write_text(f"model: {HUB}\ndata: digits\nkeep_flops: 0.5\npretrained: true\n")
    assert main(["train", "--config", "config.yaml", "--out", "run"]) == 2
    assert "which this command would download from the Hugging Face hub" in capsys.readouterr().err
