"""What to do with a small model: takes the facts of a run, gives lines to copy that fit this run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from trainonce.messages.plain_text import in_one_line
from trainonce.runs.file_names import CONFIG, SMALL
from trainonce.runs.report.outline import Report, is_finished, top1_of
from trainonce.storage.artifact.about import About
from trainonce.zoo.names import names_code

_IMPORTABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_NAME_IN_LIBRARY = re.compile(r"[\w./@-]+:[\w./@-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Snippet:
    """Something to copy, and what it does."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Snippets, and where they are to be run."""

    where: str
    snippets: list[Snippet]


def usage_of(report: Report) -> Usage | None:
    """How to load, export and measure the small model; None before it is there."""
    if not is_finished(report):
        return None
    config = report["config"]
    model = config.get("model")
    if "data" not in config or not isinstance(model, str):
        return _of_fit(report, str(model or "model"))
    return _of_code(model) if names_code(model) else _of_library(report, model)


def about_in(report: Report) -> About:
    """What a report says about its model; nothing where that makes no sense."""
    try:
        return About.from_data(report.get("about") or {})
    except (TypeError, ValueError):
        return About()


def lines_to_run(report: Report) -> list[str]:
    """Python that loads the small model in its own folder and uses it; empty if it can't be built by name."""
    about = about_in(report)
    if about.name is None or names_code(about.name) or not _NAME_IN_LIBRARY.fullmatch(about.name):
        return []
    lines = ["import torch", "import trainonce", "", 'small = trainonce.load(".")']
    fed = about.preprocessing
    if fed is None:
        return lines
    resized = (
        f"resized to {fed.size} x {fed.size}"
        if fed.shorter_side is None
        else f"its shorter side resized to {fed.shorter_side}, the center {fed.size} x {fed.size} cut out"
    )
    lines += [
        f"# An RGB image with values from 0 to 1, {resized} ({fed.interpolation}).",
        f"image = torch.rand({len(fed.mean)}, {fed.size}, {fed.size})",
        f"mean, std = torch.tensor({list(fed.mean)}), torch.tensor({list(fed.std)})",
        "scores = small(((image - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)).unsqueeze(0))",
    ]
    if about.classes:
        lines.append("print(trainonce.about_of(small).classes[scores.argmax()])")
    return lines


def _of_library(report: Report, model: str) -> Usage:
    data = report.get("data") or {}
    classes = report["config"].get("num_classes") or data.get("num_classes")
    size, snippets = data.get("image_size"), []
    if about_in(report).name == model:
        snippets = [Snippet("Load it", f'import trainonce\n\nsmall = trainonce.load("{SMALL}")')]
    elif isinstance(classes, int) and isinstance(size, int) and _NAME_IN_LIBRARY.fullmatch(model):
        text = (
            "import trainonce\nfrom trainonce.zoo.sources import Build, build\n\n"
            f"wanted = Build(num_classes={classes}, image_size={size})\n"
            f"dense = build({json.dumps(model)}, wanted=wanted).model\n"
            f'small = trainonce.load("{SMALL}", into=dense).eval()'
        )
        snippets = [Snippet("Load it", text)]
    return Usage("Run these in the folder of this page.", [*snippets, *_commands(".", "")])


def _of_code(model: str) -> Usage:
    """A model of the user's own, which Python must find."""
    module, _, function = model.partition(":")
    snippets = []
    if _IMPORTABLE.fullmatch(model):
        text = (
            f"import trainonce\nfrom {module} import {function}\n\n"
            f'small = trainonce.load("RUN/{SMALL}", into={function}()).eval()'
        )
        snippets = [Snippet("Load it", text)]
    where = f"Run these where Python finds {in_one_line(module, 80)}; RUN is the folder of this page."
    return Usage(where, [*snippets, *_commands("RUN", " --trust-code")])


def _of_fit(report: Report, name: str) -> Usage:
    """A run of `trainonce.fit` knows not where its data is, and seldom how its model is built."""
    text = (
        f"import trainonce\n\n# model: a new {in_one_line(name, 80)}, built as for trainonce.fit\n"
        f'small = trainonce.load("RUN/{SMALL}", into=model).eval()'
    )
    if lines_to_run(report):
        text = f'import trainonce\n\nsmall = trainonce.load("RUN/{SMALL}")'
    load, where = Snippet("Load it", text), "RUN is the folder of this page"
    if top1_of(report.get("after")) is None:
        # The command's data sets are all of images with a class each.
        text = (
            "import torch\n\n# inputs: a batch, as the model takes it\n"
            'torch.onnx.export(small, (inputs,), "small.onnx", dynamo=True)'
        )
        return Usage(f"{where}.", [load, Snippet("Export it to ONNX", text)])
    names = " --model package.module:function --data NAME"
    return Usage(f"{where}; name your model's function and your data.", [load, *_commands("RUN", names)[:2]])


def _commands(folder: str, more: str) -> list[Snippet]:
    config = CONFIG if folder == "." else f"{folder}/{CONFIG}"
    again = "../again" if folder == "." else f"{folder}-again"
    return [
        Snippet("Export it to ONNX", f"trainonce export {folder}{more}"),
        Snippet("Time it against the dense model", f"trainonce bench {folder}{more}"),
        Snippet("Train it again", f"trainonce train --config {config} --out {again}{more}"),
    ]
