"""A folder of a model with a name is enough to have the model again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from trainonce import ArtifactError, Preprocessing
from trainonce.errors import UnknownModelError
from trainonce.storage.artifact.about import ABOUT, MOST_BYTES, About, about_of, note_about
from trainonce.storage.atomic import seal
from trainonce.zoo.origins import difference_to, rebuild
from trainonce.zoo.sources import Build, build

IMAGES = Preprocessing(mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1), size=32, shorter_side=36)


def made_by_library(source: str) -> tuple[nn.Module, Any]:
    pytest.importorskip(source.partition(":")[0]) if not source.startswith("cifar") else None
    found = build(source)
    return found.model, found.example


def cut_in_half(model: nn.Module, example: Any) -> nn.Module:
    plan = trainonce.Plan.random(trainonce.inspect(model.eval(), example), keep=0.5)
    return trainonce.cut(model, plan)


def first_output(model: nn.Module, example: Any) -> Tensor:
    with torch.no_grad():
        found = model(**example) if isinstance(example, dict) else model(example)
    return found if isinstance(found, Tensor) else next(iter(found.values()))


@pytest.mark.parametrize(
    "source",
    [
        "cifar:resnet20",
        "torchvision:squeezenet1_1",
        "timm:test_vit",
        "transformers:SwinForImageClassification",
    ],
)
def test_a_model_with_a_name_needs_no_other(source: str, tmp_path: Path):
    model, example = made_by_library(source)
    cut_in_half(model, example)
    trainonce.save(model, tmp_path / "small", classes=["cat", "dog"], preprocessing=IMAGES)
    again = trainonce.load(tmp_path / "small")
    assert type(again) is type(model)
    assert not again.training
    assert torch.equal(first_output(again, example), first_output(model, example))
    about = trainonce.about_of(again)
    assert about.name == source
    assert (about.classes, about.preprocessing) == (("cat", "dog"), IMAGES)


def test_its_arguments_are_those_it_was_built_with(tmp_path: Path):
    model = build("cifar:resnet20", wanted=Build(num_classes=7, image_size=8)).model.half()
    trainonce.save(model, tmp_path / "small")
    again = trainonce.load(tmp_path / "small")
    assert trainonce.about_of(again).arguments == {"num_classes": 7, "image_size": 8}
    assert {tensor.dtype for tensor in again.parameters()} == {torch.float16}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("test_resnet", {"num_classes": 7, "in_chans": 1, "drop_rate": 0.2, "drop_path_rate": 0.1}),
        ("test_resnet", {"num_classes": 0}),
        ("test_convnext", {"global_pool": "max"}),
        ("test_vit", {"img_size": 64}),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else value,
)
def test_a_model_of_timm_tells_how_it_was_built(name: str, arguments: dict[str, Any], tmp_path: Path):
    timm = pytest.importorskip("timm")
    model, image = timm.create_model(name, **arguments), torch.randn(1, arguments.get("in_chans", 3), 64, 64)
    cut_in_half(model, image)
    trainonce.save(model, tmp_path / "small")
    assert torch.equal(trainonce.load(tmp_path / "small")(image), model(image))


@pytest.mark.parametrize(
    "arguments",
    [{"in_chans": 10**9}, {"drop_rate": "0.1"}, {"global_pool": "hf-hub:x/y"}, {"checkpoint_path": "x.pth"}],
    ids=lambda value: next(iter(value)),
)
def test_a_folder_says_nothing_else_about_a_model_of_timm(arguments: dict[str, Any]):
    pytest.importorskip("timm")
    with pytest.raises(UnknownModelError):
        rebuild(About(name="timm:test_resnet", arguments=arguments))


def test_a_name_may_be_given(tmp_path: Path):
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.squeezenet1_1(num_classes=3).eval()
    trainonce.save(model, tmp_path / "small", name="torchvision:squeezenet1_1", arguments={"num_classes": 3})
    image = torch.randn(1, 3, 64, 64)
    assert torch.equal(trainonce.load(tmp_path / "small")(image), model(image))
    assert ABOUT not in vars(model)


def test_a_name_that_builds_another_model_is_left_out_or_refused(tmp_path: Path):
    model = build("cifar:resnet20").model
    model.conv1.padding_mode = "reflect"
    trainonce.save(model, tmp_path / "changed")
    with pytest.raises(
        ArtifactError, match=r"^\S+ doesn't say how its [^\n]* is built\. Pass [^\n]*into=model"
    ):
        trainonce.load(tmp_path / "changed")
    with pytest.raises(ArtifactError, match=r"conv1\.padding_mode is 'reflect', not 'zeros'"):
        trainonce.save(model, tmp_path / "small", name="cifar:resnet20")
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "cifar:resnet32"}, "cifar:resnet32 with these arguments is not the dense form"),
        ({"name": "cifar:resnet21"}, "cifar:resnet21 with these arguments is not .*cifar has no model"),
        ({"name": "resnet20"}, "this can't be saved with a model: 'resnet20' is not a model name"),
        ({"name": "cifar:resnet20", "arguments": {"depth": 3}}, "cifar:resnet20 with these arguments is not"),
        ({"name": "cifar:resnet20", "arguments": {"num_classes": -1}}, "cifar:resnet20 with these arguments"),
        ({"arguments": {"num_classes": 3}}, "arguments= needs name="),
        ({"classes": "cat"}, "classes must be a list of names"),
        ({"classes": [1, 2]}, "this can't be saved with a model: the classes are not a list of names"),
        ({"classes": ["x" * MOST_BYTES]}, "the description of this model takes"),
        ({"preprocessing": {"mean": [0.5]}}, "preprocessing must be a trainonce.Preprocessing, got dict"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(given: Any, words: str, tmp_path: Path):
    model = build("cifar:resnet20").model
    before = dict(vars(model))
    with pytest.raises(ArtifactError, match=rf"^{words}[^\n]*$"):
        trainonce.save(model, tmp_path / "small", **given)
    assert list(tmp_path.iterdir()) == []
    assert vars(model) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": (), "std": (), "size": 8},
        {"mean": (0.5,), "std": (0.0,), "size": 8},
        {"mean": (0.5,), "std": (0.1, 0.2), "size": 8},
        {"mean": (math.nan,), "std": (0.1,), "size": 8},
        {"mean": (0.5,), "std": (0.1,), "size": 0},
        {"mean": (0.5,), "std": (0.1,), "size": 8, "interpolation": "a b"},
    ],
)
def test_a_preprocessing_that_is_none_is_refused(wrong: Any):
    with pytest.raises(ValueError, match=r"mean|size|interpolation"):
        Preprocessing(**wrong)


def forged(folder: Path, about: Any) -> Path:
    """A folder whose plan says something else about its model, with sums that fit."""
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"about": about}))
    (folder / "SHA256SUMS").unlink()
    seal(folder, ("plan.json", "model.safetensors"))
    return folder


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"name": "os:system"}, "the model in .* is built by os:system, which is code"),
        ({"name": "timm:hf-hub"}, "timm has no model"),
        ({"name": "cifar:resnet20", "arguments": {"num_classes": 2**40}}, "num_classes of cifar:resnet20 is"),
        ({"name": "cifar:resnet20", "arguments": {"num_classes": True}}, "num_classes of cifar:resnet20 is"),
        ({"name": "cifar:resnet20", "arguments": {"hook": "x"}}, "a model is built with num_classes and"),
        ({"name": "cifar:resnet20", "arguments": {"num_classes": 3}}, "linear.* has shape|fc.* has shape"),
        ({"name": "a b"}, "the plan is corrupt"),
        ({"name": 3}, "the plan is corrupt"),
        ({"arguments": []}, "the plan is corrupt"),
        ({"classes": {"a": 1}}, "the plan is corrupt"),
        ({"preprocessing": {"mean": [1], "std": [1], "size": 3, "code": "x"}}, "the plan is corrupt"),
        ([], "the plan is corrupt"),
    ],
)
def test_a_forged_folder_builds_nothing_that_it_may_not(about: Any, words: str, tmp_path: Path):
    trainonce.save(build("cifar:resnet20").model, tmp_path / "small")
    with pytest.raises(trainonce.TrainonceError, match=rf"^[^\n]*({words})[^\n]*$"):
        trainonce.load(forged(tmp_path / "small", about))


def test_a_config_cant_make_transformers_load_code_or_weights():
    from_transformers = pytest.importorskip("trainonce.zoo.from_transformers")
    model = build("transformers:BertModel").model
    config = json.loads(model.config.to_json_string(use_diff=False))
    bad = {
        "auto_map": {"AutoModel": "them--modeling.Evil"},
        "_attn_implementation": "kernels-community/evil",
        "attn_implementation": "kernels-community/evil",
        "quantization_config": {"quant_method": "evil"},
        "trust_remote_code": True,
    }
    again = from_transformers.rebuild_model("BertModel", {"config": config | bad})
    assert not set(bad) & set(vars(again.config)) - {"_attn_implementation"}
    assert "evil" not in repr(again.config)
    assert difference_to(again, About(name="transformers:BertModel", arguments={"config": config})) is None
    with pytest.raises(UnknownModelError, match="its backbone"):
        from_transformers.rebuild_model("BertModel", {"config": config | {"backbone": "hf-hub:them/evil"}})


def test_folders_of_earlier_versions_load(tmp_path: Path):
    model = build("cifar:resnet20").model
    trainonce.save(model, tmp_path / "small")
    plan = json.loads((tmp_path / "small" / "plan.json").read_text())
    del plan["about"]
    (tmp_path / "small" / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "small" / "SHA256SUMS").unlink()
    seal(tmp_path / "small", ("plan.json", "model.safetensors"))
    again = trainonce.load(tmp_path / "small", into=build("cifar:resnet20").model)
    assert all(map(torch.equal, again.parameters(), model.parameters()))
    with pytest.raises(ArtifactError, match="doesn't say how its"):
        trainonce.load(tmp_path / "small")


def test_what_a_model_carries_survives_copies_and_adds_up():
    model = nn.Linear(2, 2)
    note_about(model, About(classes=("a", "b")))
    note_about(model, About(preprocessing=IMAGES))
    note_about(model, About())
    assert about_of(model) == About(classes=("a", "b"), preprocessing=IMAGES)
    assert json.loads(json.dumps(vars(model)[ABOUT])) == vars(model)[ABOUT]
    vars(model)[ABOUT] = "somebody's own"
    assert about_of(model) == About()
