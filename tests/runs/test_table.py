"""Laws of the table: shares equal the exact cost, nothing is left out, JSON and table agree."""

import json

import pytest
import torch
from rich.console import Console
from torch import nn

import trainonce
from trainonce.runs.report.table import as_json, as_table
from trainonce.structure.channels import ChannelGroup, Contraction, Factor, count_alive
from trainonce.structure.partition import Partition
from trainonce.tracing.sizes.rules import SizeRules

BAR = "\u2502"


def factor(rows: list[tuple[int, list[int]]]) -> Factor:
    return Factor(
        counts_R=torch.tensor([count for count, _ in rows]),
        channels_RL=torch.tensor([channels for _, channels in rows]),
    )


@pytest.fixture
def partition() -> Partition:
    """Groups of 3 and 2 channels; one row needs both, one needs two channels of the same group."""
    wide = factor([(4, [0, -1]), (5, [1, 2]), (6, [1, 3]), (7, [4, -1]), (8, [-1, -1])])
    narrow = factor([(2, [3]), (3, [4])])
    return Partition(
        model="toy.Net",
        groups=(
            ChannelGroup("stem", 3, 1, (), None),
            ChannelGroup(
                "a.very.long.module.name.that.does.not.fit.into.the.table", 2, 16, (), "softmax in a.b.c"
            ),
        ),
        contractions=(
            Contraction("a", 10, (wide, narrow)),
            Contraction("b", 3, (wide,)),
            Contraction("c", 5, ()),
        ),
        tensor_sizes=(Contraction("a.weight", 1, (narrow,)),),
        shapes={"a.weight": (5, 7)},
        notes=("the second head was not seen",),
        example=torch.zeros(1),
        sizes=SizeRules((), {}),
    )


@pytest.fixture(scope="module")
def real_partition() -> Partition:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 16, 5),
    )
    return trainonce.inspect(model.eval(), torch.randn(1, 3, 8, 8))


def size_with_one_channel_left(
    partition: Partition, contractions: tuple[Contraction, ...], index: int
) -> int:
    masks = [torch.ones(group.num_channels, dtype=torch.long) for group in partition.groups]
    masks[index][1:] = 0
    alive = torch.cat([*masks, torch.ones(1, dtype=torch.long)])
    return sum(count_alive(contraction, alive) for contraction in contractions)


@pytest.mark.parametrize("which", ["partition", "real_partition"])
def test_shares_are_what_vanishes_from_the_exact_cost(which: str, request: pytest.FixtureRequest):
    partition = request.getfixturevalue(which)
    for index, share in enumerate(partition.shares()):
        assert share.macs == partition.macs - size_with_one_channel_left(
            partition, partition.contractions, index
        )
        assert share.parameters == partition.num_parameters - size_with_one_channel_left(
            partition, partition.tensor_sizes, index
        )


def test_shares_of_a_partition_without_groups_are_none():
    empty = Partition(
        "toy.Net", (), (Contraction("a", 5, ()),), (), {}, (), torch.zeros(1), SizeRules((), {})
    )
    assert empty.shares() == ()
    assert "0.0% of the FLOPs" in empty.summary()[1]


def printed(partition: Partition, width: int, *, everything: bool) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(as_table(partition, everything=everything))
    return capture.get()


def test_table_fits_80_columns_and_names_every_group_and_reason(partition: Partition):
    text = printed(partition, 80, everything=True)
    assert max(len(line) for line in text.splitlines()) <= 80
    # Long names are folded within their column, the only letters of which are then in order.
    column = "".join(line[1:].split(BAR)[0].strip() for line in text.splitlines() if line.startswith(BAR))
    for group in partition.groups:
        assert group.name in column
    assert "softmax" in text
    assert "2 x 16" in text
    assert "the second head was not seen" in text


def test_kept_axes_without_a_writer_are_counted_instead_of_shown(real_partition: Partition):
    short, long = (printed(real_partition, 80, everything=everything) for everything in (False, True))
    assert "0 (input)" in long
    assert "0 (input)" not in short
    assert "1 kept axis without a writer is not shown" in short


def test_summary_counts_the_same_reason_in_all_modules_as_one(partition: Partition):
    assert "kept 1x: softmax" in partition.summary()


def test_json_says_what_the_partition_says(real_partition: Partition):
    data = json.loads(as_json(real_partition))
    assert data["macs"] == real_partition.macs
    assert data["prunable_macs"] == real_partition.prunable_macs
    assert [group["name"] for group in data["groups"]] == [group.name for group in real_partition.groups]
    assert [group["kept_because"] for group in data["groups"]] == [
        group.kept_because for group in real_partition.groups
    ]
    assert [group["macs"] for group in data["groups"]] == [share.macs for share in real_partition.shares()]
