"""What the suite `others` measures: the names of the models, and the model that a name stands for.

The names are written here, so that they can be listed where the packages are not installed.
"""

from __future__ import annotations

import importlib

import torch
from torch import Tensor, nn

from trainonce.structure.channels import Example
from trainonce.zoo.sources import Source

SUITE = "others"

Built = tuple[nn.Module, Example]
"""A small model with random weights, and an example of two samples that it also trains on."""

NAMES = {
    "conformer": ("Conformer",),
    "diffusers": (
        *("UNet2DModel", "UNet2DConditionModel", "AutoencoderKL", "AutoencoderTiny"),
        *("DiTTransformer2DModel", "SD3Transformer2DModel", "FluxTransformer2DModel"),
        *("SanaTransformer2DModel", "WanTransformer3DModel"),
    ),
    "monai": ("UNet", "BasicUNet", "DynUNet", "SegResNet", "UNETR", "DiffusionModelUNet"),
    "neuralforecast": ("NHITS", "TFT", "PatchTST", "iTransformer", "TiDE"),
    "open_clip": ("ViT", "ModifiedResNet", "ConvNeXt", "CoCa"),
    "segmentation_models_pytorch": ("Unet", "UnetPlusPlus", "FPN", "PAN", "DeepLabV3Plus", "Segformer"),
    "spandrel": ("ESRGAN", "SPAN", "SwinIR", "PLKSR", "SAFMN", "NAFNet", "RCAN"),
    "speechbrain": ("ECAPA_TDNN", "Xvector", "CRDNN", "Conformer"),
    "torch_geometric": ("GCN", "GraphSAGE", "GAT", "GIN", "PNA", "GraphUNet"),
    "torchaudio": ("Conformer", "Wav2Vec2", "ConvTasNet", "Emformer", "Wav2Letter"),
    "transformers": (
        *("DetrForObjectDetection", "RTDetrForObjectDetection", "Gemma3ForCausalLM", "Qwen3ForCausalLM"),
        *("Glm4ForCausalLM", "Lfm2ForCausalLM", "Mamba2ForCausalLM", "FalconH1ForCausalLM"),
        *("Qwen3NextForCausalLM", "ModernBertForMaskedLM", "DINOv3ViTModel", "SiglipVisionModel"),
        *("Gemma4ForCausalLM", "Ministral3ForCausalLM", "Lfm3ForCausalLM"),
        *("MoonshineForConditionalGeneration",),
    ),
    "ultralytics": ("yolov8n-seg", "yolo11n", "yolo12n", "yolo26n", "rtdetr-resnet50"),
    "vit_pytorch": ("ViT", "SimpleViT", "CvT", "LeViT", "MobileViT", "PiT", "CrossViT"),
    "x_transformers": ("Decoder", "DecoderModern", "Encoder", "ViT", "CrossAttention"),
}


def sources() -> list[str]:
    """`others:PACKAGE/NAME` for every model, package by package."""
    return [f"{SUITE}:{package}/{name}" for package, names in NAMES.items() for name in names]


def is_other(source: str) -> bool:
    """Whether a source is of this suite."""
    return source.startswith(f"{SUITE}:")


def build_other(source: str) -> Source:
    """The model of a source in eval mode, with its example."""
    package, _, name = source.partition(":")[2].partition("/")
    builders = importlib.import_module(f"benchmarks.coverage.others.from_{package}").MODELS
    model, example = builders[name]()
    return Source(name=source, model=model.eval(), example=example)


def image(*, batch: int = 2, channels: int = 3, size: int = 64) -> Tensor:
    """Square images of noise."""
    return torch.randn(batch, channels, size, size)


def tokens(length: int = 12, *, batch: int = 2, vocabulary: int = 64) -> Tensor:
    """Whole numbers below the size of a vocabulary, none of which is a special token."""
    return 3 + torch.arange(batch * length).reshape(batch, length) * 7 % (vocabulary - 3)
