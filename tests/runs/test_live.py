"""The live view says where a run is: a panel on a terminal, plain lines elsewhere, nothing on other ranks."""

import io
import logging
from pathlib import Path

import pytest
from rich.console import Console

from support.moments import moment
from support.runs import Counter, make_data, make_net, make_settings
from trainonce.runs.report.live import (
    Lines,
    LivePanel,
    Moment,
    NullView,
    describe,
    draw,
    in_minutes,
)
from trainonce.runs.report.views import choose_view
from trainonce.training import fit


def shown(view: Moment, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(draw(view, "resnet20 on digits"))
    return console.file.getvalue()


def test_the_panel_and_the_line_say_the_same():
    panel, line = shown(moment()), describe(moment())
    for word in ("search", "91.5", "70.0 %", "45.0 %", "2.0 steps/s", "35 s left"):
        assert word in panel
        assert word in line
    assert "70 of 96" in panel
    assert "\n" not in line


@pytest.mark.parametrize("phase", ["warm-up", "search", "settle", "small", "dense"])
def test_every_phase_can_be_shown(phase: str):
    assert phase in shown(moment(phase=phase), width=60)


def test_a_dense_run_speaks_of_no_budget():
    dense = moment(phase="dense", keep_flops=None, keep_flops_target=None, top1=None)
    assert "target" not in describe(dense) + shown(dense)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (61, "1:01 min"), (3600, "1:00 h"), (7325, "2:02 h")]
)
def test_durations_are_short(seconds: float, text: str):
    assert in_minutes(seconds) == text


def test_lines_come_seldom_but_the_last_one_always():
    stream = io.StringIO()
    lines = Lines(stream, seconds=1000)
    for step in range(1, 101):
        lines.show(moment(step=step))
    assert stream.getvalue().count("\n") == 2
    assert "step 100/100" in stream.getvalue()


def test_a_terminal_gets_a_panel_and_a_pipe_gets_lines():
    assert isinstance(choose_view("run"), Lines)
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    panel = LivePanel("run on data", console)
    panel.show(moment())
    panel.say("the model was cut [at step 3]")
    panel.close()
    text = console.file.getvalue()
    assert "run on data" in text
    assert "[at step 3]" in text


def test_a_run_tells_its_view_and_the_null_view_is_silent(capsys: pytest.CaptureFixture[str]):
    stream = io.StringIO()
    fit(make_net(), make_data(), settings=make_settings(), view=Lines(stream, seconds=0))
    assert stream.getvalue().count("few controller updates") == 1
    assert "training continues on the small model" in stream.getvalue()
    assert "step 24/24" in stream.getvalue()
    fit(make_net(), make_data(), settings=make_settings(epochs=1, keep_flops=1), view=NullView())
    assert capsys.readouterr() == ("", "")


def test_what_any_part_warns_of_is_seen_once(tmp_path: Path):
    def warn(value):
        logging.getLogger("trainonce").warning("skipped a broken image: %s", "cat.jpg")
        return value

    stream = io.StringIO()
    settings = make_settings(epochs=2)
    fit(
        make_net(),
        make_data(),
        settings=settings,
        out=tmp_path / "run",
        loss=Counter({3}, warn),
        view=Lines(stream, seconds=1000),
    )
    assert stream.getvalue().count("skipped a broken image: cat.jpg") == 1
    assert (tmp_path / "run" / "log.txt").read_text().count("skipped a broken image: cat.jpg") == 1
    # The view is let go with the run.
    logging.getLogger("trainonce").warning("of another run")
    assert "another run" not in stream.getvalue()
