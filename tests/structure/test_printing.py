"""What a person reads of partitions and plans: everything is said, in lines that fit, and safely in HTML."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import trainonce
from graphs import GRAPHS
from graphs.subjects import inspected
from trainonce.structure.table import WIDTH, Column, Row, Table


def column_of(text: str, first: int, last: int | None) -> str:
    """A column of a text table without its line breaks and spaces."""
    return "".join("".join(line[first:last].split()) for line in text.splitlines())


@pytest.mark.parametrize("name", list(GRAPHS)[::7])
def test_a_printed_partition_names_every_group_with_its_reason(name: str):
    partition = inspected(name).partition
    text = partition.table(everything=True).as_text()
    assert max(map(len, text.splitlines())) <= WIDTH
    heading = next(line for line in text.splitlines() if line.startswith("group "))
    names = column_of(text, 0, heading.index("channels"))
    reasons = column_of(text, heading.index("may be cut"), None)
    for group in partition.groups:
        assert "".join(group.name.split()) in names
        if group.kept_because is not None:
            assert "".join(group.kept_because.split()) in reasons
    assert reasons.count("yes") >= len(partition.prunable_groups)
    for line in partition.summary():
        assert "".join(line.split()) in column_of(text, 0, None)


def test_a_printed_partition_counts_what_it_leaves_out():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    partition = trainonce.inspect(model, torch.randn(1, 3, 8, 8))
    assert "0 (input)" not in str(partition)
    assert "1 kept axis without a writer is not shown" in str(partition)
    assert "0 (input)" in partition.table(everything=True).as_text()


@pytest.mark.parametrize("name", list(GRAPHS)[::23])
def test_repr_is_one_short_line(name: str):
    partition = inspected(name).partition
    for value in (partition, trainonce.Plan.random(partition, keep=0.5)):
        assert len(repr(value).splitlines()) == 1
        assert len(repr(value)) <= WIDTH
    assert f"{len(partition.prunable_groups)} of {len(partition.groups)} groups" in repr(partition)


def test_a_printed_plan_says_what_stays():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    plan = trainonce.Plan.random(trainonce.inspect(model, torch.randn(1, 3, 8, 8)), keep=0.5)
    text = str(plan)
    assert [line.split() for line in text.splitlines() if line.startswith("0 ")] == [["0", "2"]]
    before = sum(tensor.numel() for tensor in model.state_dict().values())
    trainonce.cut(model, plan)
    after = sum(tensor.numel() for tensor in model.state_dict().values())
    assert f"{after} of {before} elements stay ({100 * after / before:.1f}%)" in text
    assert "1.num_groups: 4 -> 2" in text


def test_long_cells_are_folded_and_numbers_stand_to_the_right():
    table = Table(
        "title",
        (Column("name", widest=6), Column("n", is_number=True), Column("words")),
        (Row(("abcdefgh", "7", "one two " * 40)),),
        ("the end",),
    )
    lines = table.as_text().splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line[:9].rstrip() for line in lines[1:5]] == ["name    n", "------  -", "abcdef  7", "gh"]
    assert column_of(table.as_text(), 11, None).count("onetwo") == 40
    assert (lines[0], lines[-1]) == ("title", "the end")


def test_html_holds_what_is_said_and_no_markup_of_a_model():
    table = Table(
        "<b>net</b>", (Column("a"), Column("b", is_number=True)), (Row(("<i>x</i>", "3")),), ("1 < 2",)
    )
    page = table.as_html()
    assert "<i>" not in page
    assert "<b>net</b>" not in page
    for text in ("&lt;b&gt;net&lt;/b&gt;", "&lt;i&gt;x&lt;/i&gt;", ">3<", "1 &lt; 2"):
        assert text in page


@pytest.mark.parametrize("name", list(GRAPHS)[::37])
def test_notebooks_show_every_row_of_the_table(name: str):
    partition = inspected(name).partition
    for value in (partition, trainonce.Plan.random(partition, keep=0.5)):
        assert value._repr_html_().count("<tr") == 1 + len(value.table().rows)
