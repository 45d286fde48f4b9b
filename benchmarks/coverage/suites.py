"""The models to measure: takes the name of a suite, gives its models.

Which timm model is smallest is remembered on disk.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

import timm
import torch
from torchvision import models

from benchmarks.coverage.others.catalogue import SUITE as OTHERS
from benchmarks.coverage.others.catalogue import sources
from benchmarks.harness.flops import count_parameters
from benchmarks.sheets import sheet

CACHE = sheet.CACHE / "coverage"
LARGEST_TIMM_MODEL = 60_000_000
TRANSFORMERS = (
    *("BertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"),
    *("ViTForImageClassification", "SwinForImageClassification", "T5ForConditionalGeneration"),
    *("WhisperForConditionalGeneration", "CLIPModel", "DistilBertModel", "OPTForCausalLM"),
)
_PLAIN_CNNS = (
    *("alexnet", "densenet", "googlenet", "inception", "resnet", "squeezenet", "vgg", "wide_resnet"),
    *("r3d", "mc3", "r2plus1d", "fcn"),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """One model to measure."""

    suite: str
    source: str
    kind: str
    """Torchvision's `classification`, `video` and so on, a timm family, a package, or `transformers`."""

    is_plain_cnn: bool = False


def list_models(suite: str) -> list[Subject]:
    """All models of one suite, in the order in which they are measured."""
    return SUITES[suite]()


def list_some(suite: str) -> list[Subject]:
    """A part of a suite that is chosen by a rule, for what takes long.

    Of torchvision the smallest model of each of its modules, of timm every sixth family; of others all.
    """
    subjects = list_models(suite)
    if suite == "timm":
        return subjects[::6]
    if suite != "torchvision":
        return subjects
    smallest: dict[str, Subject] = {}
    for subject in sorted(subjects, key=_published_size):
        name = subject.source.partition(":")[2]
        smallest.setdefault(models.get_model_builder(name).__module__, subject)
    return [subject for subject in subjects if subject in smallest.values()]


def _published_size(subject: Subject) -> int:
    weights = models.get_model_weights(subject.source.partition(":")[2])
    return next(iter(weights)).meta["num_params"]


def _torchvision() -> list[Subject]:
    subjects = []
    for name in models.list_models():
        if name.startswith("quantized_"):
            continue
        room = models.get_model_builder(name).__module__.split(".")[2]
        kind = room if room in ("segmentation", "video", "detection", "optical_flow") else "classification"
        is_plain = kind in ("classification", "video", "segmentation") and name.startswith(_PLAIN_CNNS)
        subjects.append(Subject("torchvision", f"torchvision:{name}", kind, is_plain))
    return subjects


def _timm() -> list[Subject]:
    return [Subject("timm", f"timm:{name}", family) for family, name in smallest_of_families().items()]


def _transformers() -> list[Subject]:
    return [Subject("transformers", f"transformers:{name}", "transformers") for name in TRANSFORMERS]


def _scale() -> list[Subject]:
    return [Subject("scale", f"llama:{layers}", "decoder of width 4096 on meta") for layers in (4, 8, 16, 32)]


def _others() -> list[Subject]:
    return [Subject(OTHERS, source, source.partition(":")[2].partition("/")[0]) for source in sources()]


SUITES: dict[str, Callable[[], list[Subject]]] = {
    "transformers": _transformers,
    "timm": _timm,
    "torchvision": _torchvision,
    "scale": _scale,
    OTHERS: _others,
}


def smallest_of_families() -> dict[str, str]:
    """For each family of timm its smallest model, if that has fewer than 60 million parameters.

    `test_` models are no variants.
    """
    path = CACHE / f"timm-{timm.__version__}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        sizes = {family: _sizes(timm.list_models(module=family)) for family in timm.list_modules()}
        path.write_text(json.dumps(sizes, indent=1))
    sizes = json.loads(path.read_text())
    smallest = {family: min(models, key=models.__getitem__) for family, models in sizes.items() if models}
    return {family: name for family, name in smallest.items() if sizes[family][name] < LARGEST_TIMM_MODEL}


def _sizes(names: list[str]) -> dict[str, int]:
    sizes = {}
    for name in names:
        if name.startswith("test_"):
            continue
        print(
            f"\rcounting parameters of timm's models, once: {name:<60}", end="", file=sys.stderr, flush=True
        )
        with torch.device("meta"):
            sizes[name] = count_parameters(timm.create_model(name, pretrained=False))
    return sizes
