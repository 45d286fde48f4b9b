"""`python -m benchmarks paper`: rows of the paper's tables, dense and small, beside its figures.

Writes `benchmarks/results/paper.md`. Runs are kept in folders: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.paper.trials import OF_PRUNING, Cut, Trial, trial_of
from benchmarks.sheets.options import add_number, add_several
from benchmarks.sheets.sheet import Bar, bar_table, count_bar, exit_code, heading, table, write_sheet
from trainonce.errors import RunInterruptedError, SettingError, TrainonceError
from trainonce.messages.suggestions import did_you_mean
from trainonce.pruning.method import METHODS
from trainonce.recipes.paper import ROWS, Row
from trainonce.runs.report.live import NullView
from trainonce.runs.report.views import choose_view

INTERRUPTED = 75
INTRODUCTION = """\
Rows of tables 2 and 3 of the paper, each as its recipe (`docs/recipes.md`): the dense model, and the small
one by the method that is named, with the same epochs, data order and seed. `paper` is the paper's method,
`default` this library's. Accuracies are top-1 in percent, of the last epoch; *paper* is the figure that the
paper prints, *here* the one that was measured.

- *removed*: FLOPs that the small model has less, as a share of the dense one's.
- *change*: small minus dense. (For ResNet-18 on CIFAR-100 the paper prints -0.07; its figures give -1.16.)
- *time*: seconds of training, as a share of the dense run's on the same machine.
- *cut down*: what a row has less than the paper's run. **Accuracies and times of such a row say nothing about
  the paper's, nor about the methods: it only shows that the row can be run.**
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row by one method, measured with some seeds; each pair is a dense report and a small one."""

    row: Row
    method: str
    cut: str
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]

    @property
    def shares(self) -> list[float]:
        """The FLOPs of each small model, of the dense one's."""
        return [small["after"]["macs"] / small["before"]["macs"] for _, small in self.pairs]

    @property
    def is_within_budget(self) -> bool:
        """Whether each small model has at most the FLOPs that were asked for."""
        return all(share <= self.row.keep_flops for share in self.shares)

    def cells(self) -> tuple[str, ...]:
        """The row as the table has it."""
        dense = [whole["after"]["top1"] for whole, _ in self.pairs]
        small = [little["after"]["top1"] for _, little in self.pairs]
        change = [after - before for before, after in zip(dense, small, strict=True)]
        time = [little["seconds"] / whole["seconds"] for whole, little in self.pairs]
        row = self.row
        return (
            row.recipe,
            self.method,
            f"{row.removed_by_paper:.1f}",
            f"{100 * (1 - mean(self.shares)):.1f}",
            f"{row.baseline_top1:.2f}",
            _several(dense),
            f"{row.pruned_top1:.2f}",
            _several(small),
            f"{row.pruned_top1 - row.baseline_top1:+.2f}",
            _several(change, "+.2f"),
            f"{mean(time):.2f}",
            self.cut or "no",
        )


HEADER = (
    "row",
    "method",
    "removed, paper",
    "removed, here",
    "dense, paper",
    "dense, here",
    "small, paper",
    "small, here",
    "change, paper",
    "change, here",
    "time",
    "cut down",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    words = "recipes of rows, with commas between them"
    parser.add_argument("--rows", required=True, metavar="NAMES", help=words)
    add_several(parser, "--method", "how to prune", choices=tuple(METHODS), shown="paper")
    add_number(parser, "--seeds", 1, "how many")
    parser.add_argument("--data-dir", metavar="PATH", help="folder of the data set's files")
    parser.add_argument("--data", metavar="NAME", help="other data to try a row on, such as folder:PATH")
    parser.add_argument("--epochs", type=int, metavar="N", help="of each run (default: the row's)")
    parser.add_argument("--images", type=int, metavar="N", help="train on so many images (default: all)")
    parser.add_argument("--validation-images", type=int, metavar="N", help="validate on so many")
    add_several(parser, "--setting", "another setting of all runs, such as amp=true", metavar="NAME=VALUE")
    words = "folder that the runs are kept in (default: runs/paper)"
    parser.add_argument("--runs", type=Path, default=Path("runs/paper"), metavar="FOLDER", help=words)
    words = "run nothing; write the table of the runs that are finished"
    parser.add_argument("--table-only", action="store_true", help=words)


def run(arguments: argparse.Namespace) -> int:
    """Run what is not finished and write the sheet; 1 if a budget was broken, 2 if a row can't be run."""
    try:
        wanted = [_trials(row, method, arguments) for row, method in _rows_and_methods(arguments)]
        if not arguments.table_only:
            _do([trial for _, _, pairs in wanted for pair in pairs for trial in pair])
    except RunInterruptedError:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    except TrainonceError as error:
        print(f"benchmarks paper: {error}", file=sys.stderr)
        return 2
    if os.environ.get("RANK", "0") != "0":
        return 0
    found = outcomes(wanted)
    bars = summarise(found, num_wanted=len(wanted))
    write_sheet(
        arguments.out,
        "The rows of the paper",
        heading("torchvision", "trainonce", seeds=_seeds(arguments)),
        INTRODUCTION,
        bar_table(bars),
        "## Rows",
        table(HEADER, [outcome.cells() for outcome in found]),
    )
    return exit_code(bars)


Wanted = tuple[Row, str, list[tuple[Trial, Trial]]]
"""A row, a method, and for each seed the dense run and the small one."""


def outcomes(wanted: Sequence[Wanted]) -> list[Outcome]:
    """What is finished: rows with a dense and a small run, of any seed."""
    found = []
    for row, method, trials in wanted:
        reports = [(dense.report, small.report) for dense, small in trials]
        pairs = [(dense, small) for dense, small in reports if dense is not None and small is not None]
        if pairs:
            found.append(Outcome(row, method, trials[0][1].cut.of(row), pairs))
    return found


def summarise(found: Sequence[Outcome], *, num_wanted: int) -> list[Bar]:
    """The bars over all rows."""
    num_met = sum(outcome.is_within_budget for outcome in found)
    num_whole = sum(not outcome.cut for outcome in found)
    return [
        count_bar("rows run to the end", len(found), num_wanted),
        count_bar("rows within their budget", num_met, len(found)),
        ("rows that are as the paper has them, not cut down", "-", f"{num_whole} of {len(found)}", True),
    ]


def find_rows(names: str) -> list[Row]:
    """The rows of these recipes; SettingError for a name that is none of the paper's."""
    by_name = {row.recipe: row for row in ROWS}
    found = []
    for name in (part.strip() for part in names.split(",")):
        if name not in by_name:
            advice = did_you_mean(name, by_name) or f"Choose from {', '.join(by_name)}."
            raise SettingError(f"the paper has no row {name!r}. {advice}")
        found.append(by_name[name])
    return found


def read_settings(words: Sequence[str]) -> dict[str, Any]:
    """`amp=true` and the like as values; SettingError for what the row says itself."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name in (*OF_PRUNING, "model", "data", "epochs", "seed"):
            raise SettingError(
                f"{word!r} can't be a setting of all runs. Write NAME=VALUE, such as amp=true."
            )
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _rows_and_methods(arguments: argparse.Namespace) -> list[tuple[Row, str]]:
    rows, methods = find_rows(arguments.rows), arguments.method or ["paper"]
    return [(row, method) for row in rows for method in methods]


def _trials(row: Row, method: str, arguments: argparse.Namespace) -> Wanted:
    cut = Cut(
        epochs=arguments.epochs,
        num_images=arguments.images,
        num_validation=arguments.validation_images,
        data=arguments.data,
    )
    settings = read_settings(arguments.setting)
    if arguments.data_dir is not None:
        settings["data_dir"] = arguments.data_dir
    pairs = []
    for seed in range(arguments.seeds):
        dense, small = (
            trial_of(row, method=name, cut=cut, settings=settings, seed=seed, place=arguments.runs)
            for name in (None, method)
        )
        pairs.append((dense, small))
    return row, method, pairs


def _do(trials: Sequence[Trial]) -> None:
    """Each run that is not finished, in order; rows of one model share a dense run."""
    for trial in {trial.folder: trial for trial in trials}.values():
        if trial.report is not None:
            continue
        is_first = os.environ.get("RANK", "0") == "0"
        view = choose_view(trial.folder.name) if is_first else NullView()
        try:
            trial.do(view)
        finally:
            view.close()


def _several(numbers: Sequence[float], form: str = ".2f") -> str:
    """The mean, and each number if there are several."""
    if len(numbers) == 1:
        return f"{numbers[0]:{form}}"
    return f"{mean(numbers):{form}} ({', '.join(f'{number:{form}}' for number in numbers)})"


def _seeds(arguments: argparse.Namespace) -> str:
    return "seed 0" if arguments.seeds == 1 else f"seeds 0 to {arguments.seeds - 1}"
