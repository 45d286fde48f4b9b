"""Laws of the model sources.

What is built accepts its own example, what can't be built is refused in one line.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trainonce.errors import InputError, MissingPackageError, UnknownModelError
from trainonce.zoo import sources
from trainonce.zoo.inputs import describe, parse_inputs
from trainonce.zoo.sources import Source, build

OWN_MODULE = """
import torch
from torch import nn

number = 3

class Nested:
    @staticmethod
    def make():
        return nn.Linear(4, 2)

def build():
    return nn.Linear(4, 2).train()

def broken():
    raise RuntimeError("first line\\nsecond line")

def text():
    return "no model"
"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_models.py").write_text(OWN_MODULE)
    (tmp_path / "bad_syntax.py").write_text("def build(:\n")
    (tmp_path / "bad_import.py").write_text("import surely_not_installed\n")
    monkeypatch.chdir(tmp_path)
    for name in ("own_models", "bad_syntax", "bad_import"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def run(source: Source) -> object:
    with torch.no_grad():
        if isinstance(source.example, dict):
            return source.model(**source.example)
        return (
            source.model(*source.example)
            if isinstance(source.example, tuple)
            else source.model(source.example)
        )


@pytest.mark.parametrize(
    "name",
    [
        "torchvision:squeezenet1_1",
        "torchvision:lraspp_mobilenet_v3_large",
        "torchvision:ssdlite320_mobilenet_v3_large",
        "torchvision:raft_small",
        "torchvision:r3d_18",
        "timm:test_resnet",
        "timm:test_vit.r160_in1k",
        "transformers:LlamaForCausalLM",
        "transformers:SwinForImageClassification",
        "transformers:WhisperForConditionalGeneration",
        "transformers:CLIPModel",
        "transformers:ConvNextForImageClassification",
    ],
)
def test_a_source_accepts_its_own_example(name: str):
    source = build(name)
    assert source.name == name
    assert not source.model.training
    assert run(source) is not None


def test_small_llama_shares_keys_between_heads():
    config = build("transformers:LlamaForCausalLM").model.config
    assert 1 < config.num_key_value_heads < config.num_attention_heads


def test_examples_are_the_same_each_time():
    first, second = build("timm:test_resnet").example, build("timm:test_resnet").example
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("torchvision:resnt50", "resnet50"),
        ("timm:convnext_tny", "convnext_tiny"),
        ("transformers:LLamaForCausalM", "LlamaForCausalLM"),
        ("torchvision:quantized_resnet50", "torchvision:resnet50"),
        ("transformers:BertConfig", "transformers:BertModel"),
        ("resnet50", "torchvision:NAME"),
        ("torchvision:", "torchvision:NAME"),
        ("surely_not_installed:build", "surely_not_installed"),
    ],
)
def test_unknown_names_are_refused_in_one_line_that_helps(name: str, near: str):
    with pytest.raises(UnknownModelError) as caught:
        build(name)
    assert near in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match="pip install timm"):
        build("timm:resnet18")


@pytest.mark.parametrize("name", ["own_models:build", "own_models:Nested.make"])
def test_own_models_are_imported_from_the_current_directory(name: str, own_folder: Path):
    source = build(name, ["2x4"])
    assert isinstance(source.model, nn.Linear)
    assert not source.model.training
    assert describe(source.example) == "2x4"
    assert str(own_folder) not in sys.path


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("own_models:biuld", "build"),
        ("own_models:number", "not a callable"),
        ("own_models:text", "returned a str"),
        ("own_models:broken", "first line second line"),
        ("bad_syntax:build", "can't be imported"),
        ("bad_import:build", "surely_not_installed"),
    ],
)
def test_own_models_that_fail_are_refused_in_one_line(name: str, part: str):
    with pytest.raises(UnknownModelError) as caught:
        build(name, ["1x4"])
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("own_folder")
def test_own_models_need_an_input():
    with pytest.raises(UnknownModelError, match="--input"):
        build("own_models:build")


def test_inputs_become_a_tensor_a_tuple_or_a_dict():
    one = parse_inputs(["1x3x8x8"])
    assert isinstance(one, Tensor)
    assert one.shape == (1, 3, 8, 8)
    assert one.dtype == torch.float32
    several = parse_inputs(["1x3", "2x5:int"])
    assert isinstance(several, tuple)
    assert several[1].dtype == torch.int64
    named = parse_inputs(["ids=1x16:int", "mask=1x16:bool"])
    assert isinstance(named, dict)
    assert named["mask"].dtype == torch.bool


@pytest.mark.parametrize(
    "texts",
    [
        ["1x3x"],
        ["1,3"],
        ["0x3"],
        ["axb"],
        ["a=1x3", "1x3"],
        ["a=1x3", "a=1x3"],
        ["1x3:half"],
        ["9999999999999x9999999999999"],
    ],
)
def test_inputs_that_are_no_shapes_are_refused_in_one_line(texts: list[str]):
    with pytest.raises(InputError) as caught:
        parse_inputs(texts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["1x3x8x8", "1x16:int", "mask=1x16:bool"])
def test_describe_reads_like_the_input_was_written(text: str):
    assert describe(parse_inputs([text])) == text
