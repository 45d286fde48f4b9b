"""In a notebook, the panel is drawn in place and lines are printed; nothing of it needs a terminal."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from support.moments import moment
from trainonce.runs.report import notebook
from trainonce.runs.report.live import Lines
from trainonce.runs.report.notebook import NotebookPanel, as_html
from trainonce.runs.report.views import choose_view


class Handle:
    def __init__(self, drawn: list[str]) -> None:
        self.drawn = drawn

    def update(self, page: str) -> None:
        self.drawn.append(page)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A kernel, as far as a view needs it; what it was asked to draw."""
    pages: list[str] = []

    def display(page: str, *, display_id: bool) -> Handle:
        assert display_id
        pages.append(page)
        return Handle(pages)

    kernel: Any = ModuleType("IPython")
    kernel.get_ipython = lambda: SimpleNamespace(kernel=object())
    kernel.display = ModuleType("IPython.display")
    kernel.display.display, kernel.display.HTML = display, str
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", kernel.display)
    return pages


def test_a_kernel_gets_a_panel_and_a_terminal_of_ipython_does_not(
    drawn: list[str], monkeypatch: pytest.MonkeyPatch
):
    assert isinstance(choose_view("run"), NotebookPanel)
    sys.modules["IPython"].get_ipython = lambda: SimpleNamespace()  # type: ignore[attr-defined]
    assert isinstance(choose_view("run"), Lines)
    sys.modules["IPython"].get_ipython = lambda: None  # type: ignore[attr-defined]
    assert isinstance(choose_view("run"), Lines)


def test_panels_come_when_they_are_due_and_the_last_one_in_any_case(
    drawn: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = [100.0]
    monkeypatch.setattr(notebook.time, "monotonic", lambda: now[0])
    view = NotebookPanel("net on data")
    view.say("data: 3\x1b[31m samples")
    for step in (1, 2, 3):
        view.show(moment(step=step))
        now[0] += 0.4 * notebook.SECONDS_BETWEEN_PANELS
    assert len(drawn) == 1
    view.show(moment(step=4))
    assert len(drawn) == 2
    view.show(moment(step=5, loss=0.125))
    view.close()
    assert len(drawn) == 3
    assert "0.1250" in drawn[-1]
    assert capsys.readouterr().out == "data: 3\\x1b[31m samples\n"


def test_the_panel_is_plain_html_that_escapes_names(monkeypatch: pytest.MonkeyPatch):
    displayed: list[Any] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: displayed.append(parts))
    page = as_html(moment(metrics={"<b>iou</b>": 0.5}), "<script>alert(1)</script>")
    assert "<script" not in page
    assert "<b>iou" not in page
    assert page.startswith("<pre")
    assert "\x1b" not in page
    assert "91.50 %" in page
    # In a notebook, rich displays what it prints, unless it is told not to.
    assert displayed == []
