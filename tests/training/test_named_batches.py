"""Batches that are dicts train the same model as pairs of the same tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from support.runs import make_data, make_net, make_settings, same_weights
from trainonce.errors import SettingError
from trainonce.training import fit

TRAIN, VALIDATION = make_data()


class Named(Dataset):
    """Samples as dicts, as data sets for transformers have them."""

    def __init__(self, pair: tuple[Tensor, Tensor], *names: str, **more: Any) -> None:
        self.pair, self.names, self.more = pair, names, more

    def __len__(self) -> int:
        return len(self.pair[0])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: part[index] for name, part in zip(self.names, self.pair, strict=True)} | self.more


class Paired(Dataset):
    """The same as pairs."""

    def __init__(self, pairs: TensorDataset) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Any:
        return self.pairs[index]


class Pictured(nn.Module):
    """Takes what a model of transformers takes, and returns what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net()

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        assert labels is None
        return {"logits": self.net(pixel_values)}


def trained(model: nn.Module, train: Any, validation: Any) -> Any:
    torch.manual_seed(0)
    return fit(model, (train, validation), settings=make_settings(epochs=3), quiet=True)


@pytest.fixture(scope="module")
def by_pairs() -> Any:
    # Tensors are indexed as a whole; these are read one by one, as dicts are.
    pairs = [TensorDataset(*part) for part in (TRAIN, VALIDATION)]
    return trained(make_net(), DataLoader(Paired(pairs[0]), batch_size=16), Paired(pairs[1]))


@pytest.mark.parametrize(
    "names", [("x", "labels"), ("image", "label"), ("features", "targets"), ("data", "y")]
)
def test_the_target_is_found_by_its_name_and_one_input_needs_none(names: tuple[str, str], by_pairs: Any):
    result = trained(make_net(), DataLoader(Named(TRAIN, *names), batch_size=16), Named(VALIDATION, *names))
    assert same_weights(result.model, by_pairs.model)
    assert result.history[-1]["top1"] == by_pairs.history[-1]["top1"]


def test_inputs_go_by_name_where_the_model_has_names_and_labels_stay_out(by_pairs: Any):
    names = ("pixel_values", "labels")
    result = trained(Pictured(), DataLoader(Named(TRAIN, *names), batch_size=16), Named(VALIDATION, *names))
    assert same_weights(result.model.net, by_pairs.model)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            Named(TRAIN, "x", "answer"),
            "is a dict of x, answer. Call its targets labels, beside at least one input",
        ),
        (Named(TRAIN, "label", "labels", idx=1), "has label, idx, which the forward of Net doesn't take"),
        (
            Named(TRAIN, "x", "labels", idx=1),
            "has idx, which the forward of Net doesn't take. It takes x: leave",
        ),
    ],
)
def test_a_dict_that_does_not_fit_is_refused_in_one_line(data: Any, words: str):
    with pytest.raises(SettingError, match=words) as caught:
        trained(make_net(), data, VALIDATION)
    assert str(caught.value).isprintable()
