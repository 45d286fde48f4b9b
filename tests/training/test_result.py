"""A result prints as a table that a person can read, in a terminal and in a notebook."""

import re

from support.finished import make_report
from support.runs import make_net
from trainonce.training import Result


def make_result() -> Result:
    report = make_report()
    return Result(model=make_net(), history=tuple(report["history"]), report=report)


def test_the_text_is_a_table_of_dense_and_small():
    title, header, *rows = repr(make_result()).splitlines()
    assert title == "Result: Net after 4 epochs"
    assert header.split() == ["dense", "small", "change"]
    cells = {name: values for name, *values in (re.split(r"\s{2,}", row.strip()) for row in rows)}
    assert cells["FLOPs"] == ["1.00 k", "450", "-55.0 %"]
    assert cells["Top-1"] == ["80.00 %"]
    assert {"FLOPs", "Parameters", "Latency"} <= cells.keys()
    # Columns end at the same place.
    assert len({len(row) for row in rows if "Top-1" not in row}) == 1


def test_the_page_of_a_notebook_has_the_same_figures():
    result = make_result()
    page = result._repr_html_()
    assert page.startswith("<table><caption>Result: Net after 4 epochs</caption>")
    assert page.count("<tr>") == len(repr(result).splitlines()) - 1
    assert "<td>FLOPs</td>" in page


def test_names_are_escaped_in_a_notebook():
    class Odd(type(make_net())):
        pass

    Odd.__name__ = "<script>"
    page = Result(model=Odd(), history=(), report={})._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_process_without_a_report_has_a_title():
    assert repr(Result(model=make_net(), history=({},), report={})) == "Result: Net after 1 epoch"
