"""What a run records of its data: the same data is itself, and every change is named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torchvision.datasets import ImageFolder

from support.photo_runs import opened, rename_class, replace_contents, resume, start
from support.photos import write_photo, write_photos
from support.runs import make_data
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.data.identity import describing
from trainonce.data.identity.comparing import difference
from trainonce.data.identity.describing import describe
from trainonce.errors import DataChangedError


class Own(Dataset):
    """A data set of the user's own, random each time."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        return torch.rand(3, 8, 8), index % 4


TRAIN, VALIDATION = make_data()


def changed(pair, *, number: int = 0):
    """The tensors with one element another."""
    tensors = [tensor.clone() for tensor in pair]
    tensors[number].view(-1)[-1] += 1
    return tuple(tensors)


TENSORS = [
    (changed(TRAIN), "the values of the inputs of the training data changed"),
    (changed(TRAIN, number=1), "the values of the targets of the training data changed"),
    ((TRAIN[0][:60], TRAIN[1][:60]), r"the inputs of the training data are float32 of shape \(60, 3, 8, 8\)"),
    ((TRAIN[0].double(), TRAIN[1]), "are float64 of shape"),
    (Own(64), "was tensors and is a data set now"),
]


@pytest.mark.parametrize(("now", "words"), TENSORS, ids=range(len(TENSORS)))
def test_a_run_does_not_go_on_with_other_tensors(tmp_path: Path, now, words: str):
    start((TRAIN, VALIDATION), tmp_path / "run")
    with pytest.raises(DataChangedError, match=words):
        resume((now, VALIDATION), tmp_path / "run")
    # Tensors in a data set or a loader are the same tensors.
    resume((DataLoader(TensorDataset(*TRAIN)), TensorDataset(*VALIDATION)), tmp_path / "run")


def words_of(before, now) -> str | None:
    return difference(describe((before, VALIDATION)), describe((now, VALIDATION)))


def test_every_kind_of_data_is_itself_and_its_changes_are_named(tmp_path: Path):
    tensors, photos = TensorDataset(*TRAIN), write_photos(tmp_path / "photos", num_images=3)
    halves = ConcatDataset([Subset(tensors, range(32)), Subset(tensors, range(32, 64))])
    cases = [
        (Own(64), Own(65), "has 65 samples, 64 before"),
        (Subset(Own(64), [1, 2, 3]), Subset(Own(64), [1, 2, 4]), "the indices of "),
        (
            Subset(tensors, [1, 2]),
            Subset(TensorDataset(*changed(TRAIN)), [1, 2]),
            "the values of the inputs of the source of the training data",
        ),
        (
            halves,
            ConcatDataset(halves.datasets[::-1]),
            "the indices of part 0 of the training data changed",
        ),
        (
            DataLoader(Own(64), sampler=SubsetRandomSampler(range(30))),
            DataLoader(Own(64), sampler=SubsetRandomSampler(range(1, 31))),
            "the indices of ",
        ),
        (
            ImageFolder(photos),
            ImageFolder(write_photos(tmp_path / "more", num_images=4)),
            "4 images were added, such as ant/ant3.png",
        ),
    ]
    for before, now, words in cases:
        assert words_of(before, before) is None
        assert words in words_of(before, now)


def loaded(sampler: Any) -> DataLoader:
    return DataLoader(Own(64), sampler=sampler)


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (loaded(range(9)), loaded(range(9, 18)), "the indices of the training data changed"),
        (
            loaded(None),
            loaded(SequentialSampler(range(9))),
            "was a data set and is a Subset now",
        ),
        (
            loaded(WeightedRandomSampler([1.0] * 64, 30)),
            loaded(WeightedRandomSampler([1.0] * 63 + [2.0], 30)),
            "the sampler weights of the training data changed",
        ),
        (loaded(None), loaded(RandomSampler(Own(64), num_samples=9)), "is draws of a sampler now"),
        (
            loaded(RandomSampler(Own(64), num_samples=9)),
            loaded(RandomSampler(Own(64), num_samples=8)),
            "has 8 samples, 9 before",
        ),
    ],
    ids=range(5),
)
def test_other_choices_of_a_sampler_are_named(before, now, words: str):
    assert words_of(before, before) is None
    assert words in words_of(before, now)


def test_tensors_in_tuples_and_dicts_are_compared():
    (images, labels), (others, _) = TRAIN, changed(TRAIN)
    for before, now, words in [
        (
            ({"x": images}, labels),
            ({"x": others}, labels),
            "the values of the inputs['x'] of the training data changed",
        ),
        (
            ((images, labels), labels),
            ((images, labels + 1), labels),
            "the values of the inputs[1] of the training data changed",
        ),
        (
            (images, {"y": labels}),
            (images, {"y": labels + 1}),
            "the values of the targets['y'] of the training data changed",
        ),
    ]:
        assert words_of(before, before) is None
        assert words_of(before, now) == words


WRAPPINGS: dict[str, Callable[[Dataset], Any]] = {
    "a subset": lambda photos: Subset(photos, range(5)),
    "a loader": lambda photos: DataLoader(photos, sampler=SubsetRandomSampler(range(5))),
    "two data sets": lambda photos: ConcatDataset([photos, photos]),
    "a subset of two": lambda photos: Subset(ConcatDataset([photos, photos]), range(5)),
}


@pytest.mark.parametrize("kind", list(WRAPPINGS))
def test_images_below_other_data_sets_are_compared(kind: str, tmp_path: Path):
    photos = write_photos(tmp_path / "photos", num_images=3)

    def described() -> dict[str, Any]:
        # Both parts come from one folder, as of random_split; a change of it is one change.
        part = WRAPPINGS[kind](ImageFolder(photos))
        return describe((part, part))

    before = described()
    assert difference(before, described()) is None
    first = photos / "ant" / "ant0.png"
    content = first.read_bytes()
    first.write_bytes((photos / "ant" / "ant1.png").read_bytes())
    assert difference(before, described()) == "1 image was changed, such as ant/ant0.png"
    first.write_bytes(content)
    first.rename(first.with_name("ant9.png"))
    assert (
        difference(before, described())
        == "1 image was added, such as ant/ant9.png; 1 image was removed, such as ant/ant0.png"
    )
    first.with_name("ant9.png").rename(first)
    (photos / "ant").rename(photos / "aphid")
    assert difference(before, described()) == "class 'ant' is now 'aphid'"


def test_a_new_class_is_named_though_only_folders_tell(tmp_path: Path):
    photos = write_photos(tmp_path / "photos", num_images=3)
    before = describe((ImageFolder(photos), ImageFolder(photos)))
    shutil.copytree(photos / "ant", photos / "zebra")
    assert difference(before, describe((ImageFolder(photos), ImageFolder(photos)))) == "class 'zebra' is new"


def test_a_data_set_is_never_asked_for_a_sample():
    class Refusing(Own):
        def __getitem__(self, index: int):
            raise AssertionError("a sample was asked for")

    assert describe((Refusing(5), DataLoader(Subset(Refusing(9), [3]))))["validation"]["count"] == 1


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0, 3),
        torch.tensor(3.0),
        torch.ones(2, 3, dtype=torch.bfloat16),
        torch.ones(4, 2, dtype=torch.bool),
        torch.ones(2, 2, dtype=torch.complex64).conj(),
        torch.ones(3, 4).t(),
        torch.ones(3, 1, 2).expand(3, 5, 2),
        torch.eye(3).to_sparse(),
        torch.ones(2, requires_grad=True),
        torch.full((2, 2), float("nan")),
    ],
    ids=range(10),
)
def test_any_tensor_is_described(tensor):
    found = describing.describe_tensors([tensor])
    assert json.loads(json.dumps(found)) == found


def test_how_a_tensor_lies_in_memory_does_not_matter():
    tensor = torch.randn(5, 7, 3)
    lying = tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert describing.describe_tensors([tensor]) == describing.describe_tensors([lying])


@pytest.mark.parametrize("name", ["digits", "digits at another size"])
def test_data_by_name_is_itself(name: str):
    options = DataOptions(image_size=None if name == "digits" else 12)
    one, other = (describe(open_data("digits", options)) for _ in range(2))
    assert difference(one, other) is None
    assert len(one["training"]["tensors"]["inputs"]["digest"]) == 32
    larger = describe(open_data("digits", DataOptions(image_size=9)))
    assert difference(one, larger).startswith("image_size is 9")


def test_beyond_the_bound_sizes_of_all_and_contents_of_some_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    folder = write_photos(tmp_path / "photos", num_images=10)
    monkeypatch.setattr(describing, "MAX_HASHED_BYTES", 6000)
    monkeypatch.setattr(describing, "NUM_SAMPLED_FILES", 5)
    before = describe(opened(folder))
    assert before["training"]["contents"] == "sampled"
    listed = before["training"]["files"]
    files = {f"{name}/{file}": value for name, found in listed.items() for file, value in found.items()}
    read = [name for name, (_, digest) in files.items() if digest is not None]
    assert len(read) == 5
    assert difference(before, describe(opened(folder))) is None
    with (folder / read[0]).open("r+b") as stream:
        stream.seek(-20, os.SEEK_END)
        stream.write(b"x")
    assert difference(before, describe(opened(folder))) == f"1 image was changed, such as {read[0]}"
    unread = next(name for name in files if name not in read)
    with (folder / unread).open("ab") as stream:
        stream.write(b"x")
    assert difference(before, describe(opened(folder))).startswith("2 images were changed")


def test_listings_too_long_to_keep_are_summed_up_class_by_class(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    folder = write_photos(tmp_path / "photos", num_images=10)
    monkeypatch.setattr(describing, "MAX_LISTED_FILES", 3)
    before = describe(opened(folder))
    assert "files" not in before["training"] | before["validation"]
    assert difference(before, describe(opened(folder))) is None
    replace_contents(folder)
    assert "images of class 'ant' of the" in difference(before, describe(opened(folder)))
    for number in range(12):
        write_photo(folder / "cat" / f"new{number}.png")
    assert "class 'cat' of the training data has" in difference(before, describe(opened(folder)))
    rename_class(folder)
    assert "class 'hund' is new" in difference(before, describe(opened(folder)))
