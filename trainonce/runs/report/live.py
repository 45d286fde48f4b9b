"""Progress of a run: shows a live panel on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainonce.messages.plain_text import in_one_line, printable
from trainonce.runs.report.scores import Score, scores_of

log = logging.getLogger("trainonce")
BAR_WIDTH = 42
PHASES = ("warm-up", "search", "settle", "small")
STYLES = {"warm-up": "yellow", "search": "magenta", "settle": "cyan", "small": "green", "dense": "blue"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """The state of a run at one step."""

    step: int
    total_steps: int
    epoch: float
    epochs: int
    phase: str
    loss: float
    lr: float
    top1: float | None
    """In percent, at the last validation."""
    keep_flops: float | None
    """Share of the budgeted cost that the masks in force keep; None if nothing is pruned."""
    keep_flops_target: float | None
    num_alive: int
    num_units: int
    steps_per_second: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Others than top-1, at the last validation."""

    @property
    def seconds_left(self) -> float:
        """At the current speed."""
        return (self.total_steps - self.step) / self.steps_per_second if self.steps_per_second > 0 else 0.0


class View(Protocol):
    """What shows the progress of a run."""

    def show(self, moment: Moment) -> None:
        """Called after each step; may show it or not."""
        ...

    def say(self, line: str) -> None:
        """Show a line that stays."""
        ...

    def close(self) -> None:
        """Called when the run is over."""
        ...


class NullView:
    """Shows nothing: for all processes but the first, and for `quiet`."""

    def show(self, moment: Moment) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _Shown(logging.Handler):
    def __init__(self, view: View) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        self._view.say(record.getMessage())


@contextmanager
def warnings_shown(view: View) -> Iterator[None]:
    """Show trainonce's warnings in the view; a `NullView` leaves them to the program's logging."""
    if isinstance(view, NullView):
        yield
        return
    handler = _Shown(view)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class Lines:
    """Plain lines, one every `seconds`, for files and pipes."""

    def __init__(self, stream: TextIO | None = None, *, seconds: float = 10.0) -> None:
        self._stream = stream or sys.stderr
        self._seconds = seconds
        self._last: float | None = None

    def show(self, moment: Moment) -> None:
        """A line, if the last one is old enough or this is the end."""
        now = time.monotonic()
        # A monotonic clock may start anywhere: only differences mean something.
        if self._last is None or now - self._last >= self._seconds or moment.step == moment.total_steps:
            self._last = now
            self.say(describe(moment))

    def say(self, line: str) -> None:
        """One line."""
        print(printable(line), file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing is open."""


class LivePanel:
    """A panel that stays in place, redrawn a few times a second; lines scroll above it."""

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._console = console or Console(stderr=True)
        self._moment: Moment | None = None
        self._live = Live(
            console=self._console, refresh_per_second=4, get_renderable=self._draw, transient=False
        )
        self._live.start()

    def show(self, moment: Moment) -> None:
        """Keep it for the next refresh."""
        self._moment = moment

    def say(self, line: str) -> None:
        """Above the panel."""
        self._live.console.print(Text(printable(line)), highlight=False)

    def close(self) -> None:
        """Stop; the last panel stays."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        return draw(self._moment, self._title) if self._moment else Text("starting ...", style="dim")


def describe(moment: Moment) -> str:
    """One line of text."""
    parts = [
        f"epoch {moment.epoch:.1f}/{moment.epochs}",
        f"step {moment.step}/{moment.total_steps}",
        moment.phase,
        f"loss {moment.loss:.3f}",
    ]
    if moment.top1 is not None:
        parts.append(f"top-1 {moment.top1:.2f} %")
    parts += [str(score) for score in _scores(moment)[:1]]
    if moment.keep_flops is not None and moment.keep_flops_target is not None:
        parts.append(f"kept {100 * moment.keep_flops:.1f} % (target {100 * moment.keep_flops_target:.1f} %)")
    parts.append(f"{moment.steps_per_second:.1f} steps/s")
    parts.append(f"{in_minutes(moment.seconds_left)} left")
    return "  ".join(parts)


def draw(moment: Moment, title: str) -> RenderableType:
    """A panel for the terminal."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right")
    table.add_column()
    color = STYLES.get(moment.phase, "white")
    bar = ProgressBar(
        total=moment.total_steps,
        completed=moment.step,
        width=BAR_WIDTH,
        complete_style=color,
        finished_style=color,
    )
    share = f"{100 * moment.step / max(1, moment.total_steps):.0f} %, {in_minutes(moment.seconds_left)} left"
    table.add_row("progress", _beside(bar, Text(share)))
    table.add_row("epoch", f"{moment.epoch:.1f} of {moment.epochs}, {moment.steps_per_second:.1f} steps/s")
    table.add_row("phase", _phases(moment.phase))
    table.add_row("loss", f"{moment.loss:.4f}   learning rate {moment.lr:.4g}")
    if moment.top1 is not None:
        table.add_row("top-1", f"{moment.top1:.2f} %")
    for score in _scores(moment)[:2]:
        table.add_row(Text(score.kind.label), score.kind.shown(score.value))
    if moment.keep_flops is not None and moment.keep_flops_target is not None:
        kept = ProgressBar(total=1.0, completed=moment.keep_flops, width=BAR_WIDTH, complete_style=color)
        words = Text(f"{100 * moment.keep_flops:.1f} %, target {100 * moment.keep_flops_target:.1f} %")
        table.add_row("kept", _beside(kept, words))
        table.add_row("channels", f"{moment.num_alive} of {moment.num_units} alive")
    return Panel(
        Group(table),
        title=Text(in_one_line(title, 200)),
        title_align="left",
        border_style=color,
        expand=False,
    )


def _scores(moment: Moment) -> list[Score]:
    return scores_of({"metrics": moment.metrics})


def in_minutes(seconds: float) -> str:
    """A duration such as `42 s`, `3:05 min` or `2:10 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def _beside(left: RenderableType, right: RenderableType) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    row.add_row(left, right)
    return row


def _phases(present: str) -> Text:
    if present not in PHASES:
        return Text(present, style=STYLES.get(present, "white"))
    text = Text()
    for index, phase in enumerate(PHASES):
        text.append(" > " if index else "", style="dim")
        text.append(phase, style=f"bold {STYLES[phase]}" if phase == present else "dim")
    return text
