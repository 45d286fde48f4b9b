"""Laws of a run's data: what has changed since it began is noticed and named; data that only moved is not."""

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

from support.file_systems import needs_unicode_names
from support.photos import write_photo, write_photos
from support.runs import Counter, interrupt, make_data, make_net, make_settings, same_weights
from trainonce.cli import main
from trainonce.data.catalogue import DataOptions, open_data
from trainonce.data.identity import describing
from trainonce.data.identity.comparing import difference
from trainonce.data.identity.describing import describe
from trainonce.data.identity.keeping import read_identity
from trainonce.errors import DataChangedError, RunInterruptedError
from trainonce.training import fit

SETTINGS = make_settings(epochs=3)


def opened(folder: Path, **options):
    return open_data(f"folder:{folder}", DataOptions(image_size=8, **options))


def start(data, out: Path) -> None:
    """A run that is interrupted in its second epoch."""
    with pytest.raises(RunInterruptedError):
        fit(make_net(), data, settings=SETTINGS, loss=Counter({7}, interrupt), out=out)


def resume(data, out: Path):
    return fit(make_net(), data, settings=SETTINGS, out=out, resume=True)


def add(folder: Path) -> None:
    for number in range(3):
        write_photo(folder / "cat" / f"new{number}.png")


def remove(folder: Path) -> None:
    (folder / "dog" / "dog3.png").unlink()


def rename_class(folder: Path) -> None:
    (folder / "dog").rename(folder / "hund")


def add_class(folder: Path) -> None:
    write_photos(folder, classes=("eel",), num_images=5)


def remove_class(folder: Path) -> None:
    shutil.rmtree(folder / "bee")


def replace_contents(folder: Path) -> None:
    """Of one file, in the same number of bytes and with the same times."""
    path = folder / "ant" / "ant5.png"
    times, content = path.stat(), bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def swap_contents(folder: Path) -> None:
    one, other = folder / "ant" / "ant1.png", folder / "cat" / "cat1.png"
    mine, theirs = one.read_bytes(), other.read_bytes()
    one.write_bytes(theirs)
    other.write_bytes(mine)


def relabel(folder: Path) -> None:
    (folder / "ant" / "ant2.png").rename(folder / "bee" / "ant2.png")


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (add, r"3 images were added, such as cat/new\d\.png"),
    (remove, r"1 image was removed, such as dog/dog3\.png"),
    (rename_class, "class 'dog' is now 'hund'"),
    (add_class, "class 'eel' is new"),
    (remove_class, "class 'bee' is missing"),
    (replace_contents, r"1 image was changed, such as ant/ant5\.png"),
    (swap_contents, "2 images were changed"),
    (relabel, r"1 image was added, such as bee/ant2\.png; 1 image was removed, such as ant/ant2\.png"),
]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a run on them that was interrupted."""
    place = tmp_path_factory.mktemp("begun")
    start(opened(write_photos(place / "photos")), place / "run")
    return place


@pytest.fixture
def place(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "moved"))


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_run_does_not_go_on_with_other_images(place: Path, change: Callable[[Path], None], words: str):
    change(place / "photos")
    kept = (place / "run" / "data.json").read_bytes()
    with pytest.raises(DataChangedError, match=words) as error:
        resume(opened(place / "photos"), place / "run")
    assert str(error.value).isprintable()
    assert str(error.value).endswith("Restore the run's data, or start a new run.")
    assert (place / "run" / "data.json").read_bytes() == kept


def test_a_run_goes_on_with_the_same_images_in_another_place_to_the_same_bits(place: Path):
    whole = fit(make_net(), opened(place / "photos"), settings=SETTINGS)
    assert same_weights(resume(opened(place / "photos"), place / "run").model, whole.model)


def test_what_is_no_image_may_come_and_go(place: Path):
    (place / "photos" / "cat" / "notes.txt").write_text("a cat")
    (place / "photos" / ".DS_Store").write_text("a Mac was here")
    assert len(resume(opened(place / "photos"), place / "run").history) == SETTINGS.epochs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"augment": "none"}, "augment is none, standard before"),
        ({"seed": 5}, r"images were moved from training to validation"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings_of_the_data(place: Path, options: dict, words: str):
    with pytest.raises(DataChangedError, match=words):
        resume(opened(place / "photos", **options), place / "run")
    with pytest.raises(DataChangedError, match="image_size is 10, 8 before"):
        resume(open_data(f"folder:{place / 'photos'}", DataOptions(image_size=10)), place / "run")


def test_a_run_without_a_record_of_its_data_goes_on_with_a_warning(
    place: Path,
    caplog: pytest.LogCaptureFixture,
):
    (place / "run" / "data.json").unlink()
    resume(opened(place / "photos"), place / "run")
    assert sum("data.json is missing" in record.getMessage() for record in caplog.records) == 1
    assert (place / "run" / "data.json").is_file()


DAMAGES = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"version": 2}',
    b'{"version": 1, "training": 3, "validation": []}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_record_is_told_in_one_line(place: Path, content: bytes):
    (place / "run" / "data.json").write_bytes(content)
    with pytest.raises(DataChangedError, match=r"data\.json can't be read") as error:
        resume(opened(place / "photos"), place / "run")
    assert str(error.value).isprintable()


def test_a_record_of_wrong_values_never_gives_a_traceback(place: Path):
    whole = json.loads((place / "run" / "data.json").read_text())
    now = describe(opened(place / "photos"))
    assert difference(whole, now) is None
    for forged in forgeries(whole):
        (place / "run" / "data.json").write_text(json.dumps(forged))
        with pytest.raises(DataChangedError):
            resume(opened(place / "photos"), place / "run")


def forgeries(whole: dict) -> list[dict]:
    """The record with one value replaced by something that has no business there."""
    found = []
    for name in ("classes", "settings", "training", "validation"):
        for value in (3, "x", [1], {"x": 1}, [None]):
            found.append(whole | {name: value})
    for name in ("kind", "count", "order", "files"):
        for value in (3, "x", [1], {"x": 1}, None, {"ant": {"ant0.png": 3}}, {"ant": 7}):
            found.append(whole | {"training": whole["training"] | {name: value}})
    return found


# Tensors and data sets of torch


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
        (Subset(Own(64), [1, 2, 3]), Subset(Own(64), [1, 2, 4]), "has other indices"),
        (
            Subset(tensors, [1, 2]),
            Subset(TensorDataset(*changed(TRAIN)), [1, 2]),
            "the values of the inputs of the source of the training data",
        ),
        (
            halves,
            ConcatDataset(halves.datasets[::-1]),
            "part 0 of the training data has other indices",
        ),
        (
            DataLoader(Own(64), sampler=SubsetRandomSampler(range(30))),
            DataLoader(Own(64), sampler=SubsetRandomSampler(range(1, 31))),
            "has other indices",
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
        (loaded(range(9)), loaded(range(9, 18)), "the training data has other indices"),
        (
            loaded(None),
            loaded(SequentialSampler(range(9))),
            "was a data set and is a Subset now",
        ),
        (
            loaded(WeightedRandomSampler([1.0] * 64, 30)),
            loaded(WeightedRandomSampler([1.0] * 63 + [2.0], 30)),
            "the sampler of the training data has other weights",
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


# Large folders


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


@needs_unicode_names
def test_names_that_are_no_utf8_survive_the_record(tmp_path: Path):
    odd = os.fsdecode(b"\xff\xfe.png")
    folder = write_photos(tmp_path / "photos")
    try:
        write_photo(folder / "cat" / "x.png")
        os.rename(folder / "cat" / "x.png", folder / "cat" / odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    start(opened(folder), tmp_path / "run")
    (folder / "cat" / odd).unlink()
    with pytest.raises(DataChangedError, match=r"1 image was removed, such as cat/\\udcff\\udcfe\.png"):
        resume(opened(folder), tmp_path / "run")


# Commands on a finished run

WORDS = ["--model", "cifar:resnet20", "--keep-flops", "1", "--epochs", "1", "--batch-size", "16", "--quiet"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    write_photos(place / "photos", num_images=8)
    assert main(["train", *WORDS, "--data", f"folder:{place / 'photos'}", "--out", str(place / "run")]) == 0
    return place


@pytest.fixture
def kept(trained: Path):
    """The place of the run; its photos are put back."""
    shutil.copytree(trained / "photos", trained / "before")
    yield trained
    shutil.rmtree(trained / "photos")
    (trained / "before").rename(trained / "photos")


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["evaluate", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def validation_image(folder: Path) -> str:
    return next(iter(opened(folder).validation.describe_identity()["files"]["cat"]))


def test_evaluate_refuses_validation_data_that_has_changed_unless_it_is_named(
    kept: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    before = evaluated(capsys, str(kept / "run"))
    write_photo(kept / "photos" / "cat" / validation_image(kept / "photos"), content="another cat")
    for command in ("evaluate", "export", "bench"):
        assert main([command, str(kept / "run")]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "1 image was changed, such as cat/" in err
        assert "--data-dir" in err
    after = evaluated(capsys, str(kept / "run"), "--data-dir", str(kept / "photos"))
    assert after["loss"] != before["loss"]
    assert sum("1 image was changed" in record.getMessage() for record in caplog.records) == 1


def test_evaluate_refuses_other_classes_even_if_they_are_named(
    kept: Path,
    capsys: pytest.CaptureFixture[str],
):
    rename_class(kept / "photos")
    for words in ([], ["--data-dir", str(kept / "photos")]):
        assert main(["evaluate", str(kept / "run"), *words]) == 2
        assert "class 'dog' is now 'hund'" in capsys.readouterr().err


def test_evaluate_does_not_mind_the_training_data_and_normalizes_as_in_training(
    kept: Path,
    capsys: pytest.CaptureFixture[str],
):
    before = evaluated(capsys, str(kept / "run"))
    trained_on = opened(kept / "photos").train.describe_identity()["files"]["cat"]
    for name in trained_on:
        shutil.copy(kept / "photos" / "dog" / "dog0.png", kept / "photos" / "cat" / name)
    assert evaluated(capsys, str(kept / "run")) == before


def test_a_folder_that_was_moved_is_named_with_data_dir(
    kept: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    before = evaluated(capsys, str(kept / "run"))
    shutil.copytree(kept / "photos", tmp_path / "moved")
    (kept / "photos").rename(kept / "away")
    try:
        assert main(["evaluate", str(kept / "run")]) == 2
        assert "--data-dir" in capsys.readouterr().err
        assert evaluated(capsys, str(kept / "run"), "--data-dir", str(tmp_path / "moved")) == before
    finally:
        (kept / "away").rename(kept / "photos")


@pytest.mark.parametrize(
    "content", [b"[" + b"[]," * 2_000_000 + b"0]", b'["' + "\U0001f600".encode() + b'"]']
)
def test_a_record_that_would_fill_memory_is_refused_before_it_is_parsed(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(json, "loads", lambda *_: pytest.fail("it was parsed"))
    (tmp_path / "data.json").write_bytes(content)
    with pytest.raises(DataChangedError, match="no run has written"):
        read_identity(tmp_path)
