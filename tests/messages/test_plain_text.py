"""Laws of what messages show.

One line, bounded, nothing that steers a terminal, and what was written stays readable.
"""

import unicodedata

import pytest
from rich.console import Console

from support.finished import make_report
from trainonce.cli import main
from trainonce.messages.plain_text import in_one_line, printable, reason_of, steers
from trainonce.runs.report.live import LivePanel, Moment, draw
from trainonce.runs.report.run_table import as_run_table
from trainonce.runs.report.table import as_title

HOSTILE = [
    "\x1b[31mred",
    "a\nb",
    "a\rb",
    "\x07",
    "\u202egpj.exe",
    "\u2066x",
    "\x9b2J",
    "\u2028",
    "\ufeffx",
    "a\x00b",
    "\udce9",
]
MARKUP = ["runs/[v2]/x", "[/x]", "[bold]no[/bold]", "[link=x]", ":smile:", "[/]", "a[b", "\\[x]"]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_steers_a_terminal_is_written_out(text: str):
    line = in_one_line(text)
    assert line.isprintable()
    assert not any(
        unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in line + printable(text)
    )
    assert steers(text) or text == "\udce9", "bytes that are no text are allowed in paths"


@pytest.mark.parametrize(
    "text", ["runs/demo", "caf\u00e9/\u732b", "a  b", "\u0645\u06cc\u200c\u062e", *MARKUP]
)
def test_ordinary_names_stay_as_they_are(text: str):
    assert printable(text) == text
    assert not steers(text)


def test_a_line_is_bounded_however_long_the_text_is():
    assert len(in_one_line("x" * 10**7, 100)) == 100
    assert len(in_one_line("\x1b" * 10**6, 100)) == 100
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(ValueError("two\nlines")) == "two lines"


def shown(what: object) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def a_moment() -> Moment:
    numbers = {
        "epoch": 1.0,
        "loss": 0.5,
        "lr": 0.1,
        "top1": 50.0,
        "keep_flops": 0.7,
        "keep_flops_target": 0.5,
        "steps_per_second": 1.0,
    }
    return Moment(step=1, total_steps=2, epochs=2, phase="search", num_alive=1, num_units=2, **numbers)


@pytest.mark.parametrize("name", MARKUP)
def test_brackets_in_names_are_shown_as_they_are(name: str, capsys: pytest.CaptureFixture[str]):
    report = make_report()
    report["config"]["model"] = report["config"]["data"] = name
    assert f"{name} on {name}" in shown(as_run_table(report))
    assert name in shown(as_title(name))
    assert name in shown(draw(a_moment(), name))
    panel = LivePanel(name, Console(width=120, force_terminal=True, color_system=None))
    panel.show(a_moment())
    panel.say(f"said {name}")
    panel.close()
    assert f"said {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", HOSTILE)
def test_control_characters_in_names_never_reach_the_terminal(name: str):
    report = make_report()
    report["config"]["model"] = report["config"]["data"] = name
    for text in (shown(as_run_table(report)), shown(as_title(name)), shown(draw(a_moment(), name))):
        assert all(letter == "\n" or letter.isprintable() for letter in text)


@pytest.mark.parametrize("command", ["inspect", "evaluate", "report", "export", "bench"])
@pytest.mark.parametrize("name", [*MARKUP, *HOSTILE[:4]])
def test_a_command_repeats_names_as_they_are_in_one_line(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
):
    assert main([command, name]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    if name in MARKUP:
        assert name in err


def test_rich_markup_in_a_models_name_is_text_while_it_is_inspected(capsys: pytest.CaptureFixture[str]):
    for name in ("timm:[/x]", "[/x]:build", "cifar:[v2]"):
        assert main(["inspect", name]) == 2
        assert name.partition(":")[2] in capsys.readouterr().err
