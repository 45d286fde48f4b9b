"""Laws of the data.

A sample looks the same whoever reads it, nothing is lost or repeated, what is broken is named.
"""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from support.image_folders import one_batch, write_classes
from trainonce.data import cifar, fashion
from trainonce.data.augmentation import POLICIES, ShiftAndFlip, small_image_augmentation
from trainonce.data.catalogue import (
    DataOptions,
    check_source,
    dataset,
    dataset_names,
    open_data,
)
from trainonce.data.pictures import Normalization
from trainonce.data.sample_rng import mix, uniform
from trainonce.errors import DataError


def test_noise_depends_on_sample_and_seed_alone():
    samples = torch.tensor([5, 7, 5, 9])
    noise = uniform(samples, 3, 4)
    assert torch.equal(noise[0], noise[2])
    assert torch.equal(uniform(torch.tensor([9, 5]), 3, 4), noise[[3, 0]])
    assert not torch.equal(uniform(samples, 4, 4), noise)


def test_noise_is_uniform_and_uncorrelated():
    noise = uniform(torch.arange(50_000), 1, 3)
    assert noise.min() >= 0
    assert noise.max() < 1
    assert torch.allclose(noise.mean(0), torch.tensor(0.5).double(), atol=0.01)
    assert torch.allclose(noise.var(0), torch.tensor(1 / 12).double(), atol=0.002)
    assert torch.corrcoef(noise.T).fill_diagonal_(0).abs().max() < 0.02


def test_mix_tells_orders_and_lengths_apart():
    seen = {mix(1, 2), mix(2, 1), mix(1), mix(1, 2, 0), mix(0, 1, 2), mix(-1)}
    assert len(seen) == 6
    assert all(0 <= number < 2**63 for number in seen)


@pytest.mark.parametrize("flips", [False, True])
def test_every_changed_image_is_a_crop_of_the_padded_one(flips: bool):
    images = torch.randint(1, 256, (6, 3, 8, 8), dtype=torch.uint8)
    changed = ShiftAndFlip(shift=2, flips=flips)(images, torch.arange(6), 1)
    seen = set()
    for image, found in zip(images, changed, strict=True):
        padded = F.pad(image, (2, 2, 2, 2))
        crops = {(y, x, m): padded[:, y : y + 8, x : x + 8].flip(2) if m else padded[:, y : y + 8, x : x + 8]
                 for y in range(5) for x in range(5) for m in ((0, 1) if flips else (0,))}  # fmt: skip
        matches = [key for key, crop in crops.items() if torch.equal(crop, found)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 2


@pytest.mark.parametrize("policy", POLICIES)
def test_augmentation_is_the_same_in_any_company(policy: str):
    images = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8)
    augment = small_image_augmentation(policy, 16, flips=True)
    before = torch.random.get_rng_state()
    together = augment(images, torch.arange(8), 5)
    alone = torch.cat([augment(images[i : i + 1], torch.tensor([i]), 5) for i in range(8)])
    assert torch.equal(together, alone)
    assert together.dtype == torch.uint8
    assert torch.equal(torch.random.get_rng_state(), before)


def test_normalised_images_have_mean_zero_and_deviation_one():
    images = torch.randint(0, 256, (50, 3, 9, 9), dtype=torch.uint8)
    images[:, 1] //= 3
    normalised = Normalization.of(images)(images)
    assert torch.allclose(normalised.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(normalised.std(dim=(0, 2, 3)), torch.ones(3), atol=1e-3)


def test_black_images_stay_finite():
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    assert torch.isfinite(Normalization.of(images)(images)).all()


def test_digits_need_no_download_and_do_not_overlap():
    data = open_data("digits", DataOptions(augment="none"))
    assert (len(data.train), len(data.validation), data.num_classes, data.image_size) == (1437, 360, 10, 8)
    train, _ = one_batch(data.train, torch.arange(1437))
    validation, labels = one_batch(data.validation, torch.arange(360))
    assert train.shape == (1437, 3, 8, 8)
    assert set(labels.tolist()) == set(range(10))
    distances = torch.cdist(train.flatten(1), validation.flatten(1))
    assert distances.min() > 0


def test_images_come_in_the_size_that_is_asked_for():
    data = open_data("digits", DataOptions(image_size=16))
    assert one_batch(data.train, torch.arange(3))[0].shape == (3, 3, 16, 16)


class FakeCifar:
    def __init__(self, root: Path, *, train: bool, download: bool) -> None:
        if not download and not (root / "here").exists():
            raise RuntimeError("Dataset not found or corrupted.")
        if download:
            (root / "here").touch()
        generator = torch.Generator().manual_seed(int(train))
        self.data = torch.randint(0, 256, (20, 32, 32, 3), dtype=torch.uint8, generator=generator).numpy()
        self.targets = [i % 10 for i in range(20)]
        self.classes = [str(i) for i in range(10)]


class FakeFashion(FakeCifar):
    def __init__(self, root: Path, *, train: bool, download: bool) -> None:
        super().__init__(root, train=train, download=download)
        self.data, self.targets = torch.from_numpy(self.data)[..., 0], torch.tensor(self.targets)


@pytest.mark.parametrize(
    ("name", "module", "kind", "fake"),
    [
        ("cifar10", cifar, "CIFAR10", FakeCifar),
        ("cifar100", cifar, "CIFAR100", FakeCifar),
        ("fashion_mnist", fashion, "FashionMNIST", FakeFashion),
    ],
)
def test_torchvision_sets_are_downloaded_only_where_allowed(
    name, module, kind, fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module.datasets, kind, fake)
    with pytest.raises(DataError, match="--download"):
        open_data(name, DataOptions(data_dir=tmp_path, download=False))
    for download in (True, False):
        data = open_data(name, DataOptions(data_dir=tmp_path, download=download))
        images, labels = one_batch(data.validation, torch.arange(20))
        assert images.shape == (20, 3, 32, 32)
        assert labels.tolist() == [i % 10 for i in range(20)]


def test_a_failed_download_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(root: Path, *, train: bool, download: bool) -> None:
        raise (OSError("no\nnetwork") if download else RuntimeError("not found"))

    monkeypatch.setattr(cifar.datasets, "CIFAR10", fail)
    with pytest.raises(DataError, match=r"can't be downloaded \(no network\)"):
        open_data("cifar10", DataOptions(data_dir=tmp_path))


@pytest.mark.parametrize(
    "source", ["digit", "", "folder:", "folder:/no/such/place", "cifar10:here", "imagenett", "imagenet:x"]
)
def test_a_wrong_name_is_refused_before_anything_is_loaded(source: str):
    with pytest.raises(DataError) as error:
        check_source(source, DataOptions())
    assert "\n" not in str(error.value)
    assert "." in str(error.value)


def test_near_names_are_suggested():
    with pytest.raises(DataError, match="cifar100"):
        check_source("cifar1000", DataOptions())


def test_imagenet_needs_a_folder(tmp_path: Path):
    with pytest.raises(DataError, match="--data-dir"):
        open_data("imagenet", DataOptions())
    write_classes(tmp_path / "train", num_images=2)
    write_classes(tmp_path / "val", num_images=1)
    assert open_data("imagenet", DataOptions(data_dir=tmp_path)).image_size == 224


def test_a_name_is_registered_once():
    assert {"digits", "cifar10", "cifar100", "fashion_mnist", "imagenet", "folder"} <= set(dataset_names())
    with pytest.raises(ValueError, match="already"):
        dataset("digits")(open_data)
