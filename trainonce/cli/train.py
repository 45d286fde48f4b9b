"""`trainonce train`: a run from a recipe, a file and flags."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from trainonce.cli.flags import add_setting_flags, given_settings
from trainonce.cli.printing import say, show
from trainonce.cli.trust import add_trust_flag, check_trust
from trainonce.errors import SettingError
from trainonce.recipes.catalogue import find_recipe, recipe_names
from trainonce.recipes.run import Run, check_run, run_from, scale_epochs, train
from trainonce.runs.config_file import read_yaml, to_yaml
from trainonce.runs.file_names import CONFIG, PAGE
from trainonce.runs.folder import Stage, check_start, clear, occupied, read_unchanged_config, stage_of
from trainonce.runs.report.live import NullView
from trainonce.runs.report.run_table import as_run_table
from trainonce.runs.report.views import choose_view
from trainonce.runs.report.writing import complete_report
from trainonce.training.session import MAY_DIFFER
from trainonce.training.settings import as_plain
from trainonce.training.starts import ON_WHICH_DEFAULTS_DEPEND
from trainonce.zoo.names import how_to_resume

_EXAMPLES = """\
examples:
  trainonce train digits.resnet20 --keep-flops 0.25 --out runs/demo
  trainonce train cifar10.resnet56 --data-dir ~/data --out runs/r56
  trainonce train --model timm:convnext_atto --data folder:photos/ --keep-flops 0.5 --out runs/mine
  trainonce train --config runs/r56/config.yaml --seed 1 --out runs/r56-again
  trainonce train --resume runs/r56
  torchrun --nproc-per-node 8 -m trainonce train imagenet.resnet50 --data-dir /data/imagenet --out runs/r50

Flags override --config, which overrides the recipe. --epochs also scales a recipe's schedule.
Exit codes: 0 done, 2 bad input, 75 interrupted (resume it with --resume).
"""


def add_commands(commands: Any) -> None:
    """Add `train`."""
    parser = commands.add_parser(
        "train",
        help="train a model once and get a small one",
        description="Train a model once and get a small one, with a report.",
        epilog=f"recipes:\n  {', '.join(recipe_names())}\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="name of a recipe; see below")
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="settings in YAML, such as another run's config.yaml",
    )
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="output folder (default: runs/NAME)")
    parser.add_argument(
        "--resume",
        metavar="FOLDER",
        help="resume the run in this folder; auto: resume if --out holds this run, else start it",
    )
    add_trust_flag(parser)
    parser.add_argument("--print-config", action="store_true", help="print the resulting settings and exit")
    parser.add_argument("--quiet", action="store_true", help="show the result only")
    add_setting_flags(parser)
    parser.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> None:
    run, out, resume = _settle(arguments)
    if arguments.print_config:
        sys.stdout.write(to_yaml(as_plain(run)))
        return
    check_run(run)
    is_first = os.environ.get("RANK", "0") == "0"
    if resume and stage_of(out) is Stage.FINISHED:
        if is_first:
            with occupied(out):
                clear(out)
                page = complete_report(out)
            say(f"the run in {out} is finished. Report: {page}")
        return
    if is_first and not resume:
        check_start(out, resume=False)
    view = choose_view(f"{run.model} on {run.data}") if is_first and not arguments.quiet else NullView()
    try:
        result = train(run, out=out, resume=resume, view=view)
    finally:
        view.close()
    if is_first:
        show(as_run_table(result.report))
        say(f"small model: {out / 'small'}")
        if (out / PAGE).is_file():
            say(f"report: {out / PAGE}")


def _settle(arguments: argparse.Namespace) -> tuple[Run, Path, bool]:
    """The run that recipe, file and flags define, its folder, and whether to resume it."""
    given = given_settings(arguments)
    if arguments.resume is not None and arguments.resume != "auto":
        return _settle_resumed(arguments, given)
    if arguments.recipe is None and arguments.config is None and not {"model", "data"} & given.keys():
        raise SettingError(
            "nothing to train: pass a recipe, --config, or --model and --data. trainonce train --help lists "
            "the recipes."
        )
    run = Run() if arguments.recipe is None else find_recipe(arguments.recipe)
    config: dict[str, Any] = {}
    if arguments.config is not None:
        config = read_yaml(arguments.config)
        if not arguments.print_config and "model" not in given:
            check_trust(config.get("model"), file=arguments.config, is_trusted=arguments.trust_code)
    # Defaults depend on these; whatever the file says takes the place of a default, not of a flag.
    run = run_from(config | {name: given[name] for name in ON_WHICH_DEFAULTS_DEPEND & given.keys()}, run)
    if "epochs" in given and arguments.recipe is not None:
        run = scale_epochs(run, given["epochs"])
    if "keep_params" in given and "keep_flops" not in given:
        given["keep_flops"] = None
    run = run_from(given, run)
    name = arguments.recipe or f"{run.model.rpartition(':')[2]}-{run.data.partition(':')[0]}"
    out = arguments.out
    if out is None:
        out = Path("runs") / (
            name if arguments.resume == "auto" else f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        )
    return run, out, arguments.resume == "auto"


def _settle_resumed(arguments: argparse.Namespace, given: dict[str, Any]) -> tuple[Run, Path, bool]:
    folder = Path(arguments.resume)
    if arguments.out is not None and arguments.out.resolve() != folder.resolve():
        raise SettingError(
            f"--out is {arguments.out} and --resume is {folder}. A run is resumed in its own folder: omit "
            "--out."
        )
    if arguments.recipe is not None or arguments.config is not None:
        raise SettingError("--resume takes all settings from the run's folder. Omit the recipe and --config.")
    if not folder.is_dir() or stage_of(folder) is Stage.NEW:
        raise SettingError(
            f"there is no run in {folder}. Pass a folder that trainonce train wrote (with config.yaml)."
        )
    config = read_unchanged_config(folder, may_differ=MAY_DIFFER)
    if "model" not in config:
        raise SettingError(
            f"the run in {folder} was made by trainonce.fit. Resume it with {how_to_resume(folder, config)}."
        )
    # Naming the model again says that it is trusted.
    same = {"model"} if given.get("model") == config["model"] else set()
    if fixed := sorted(given.keys() - MAY_DIFFER - same):
        raise SettingError(
            f"--{fixed[0].replace('_', '-')} can't change when a run is resumed. Omit it, or start a new run."
        )
    if not arguments.print_config and "model" not in given:
        check_trust(config["model"], file=folder / CONFIG, is_trusted=arguments.trust_code)
    # A run of an earlier trainonce lacks newer settings; the defaults of a run from scratch are what it did.
    return run_from(as_plain(Run()) | config | given, Run()), folder, True
