"""The examples run as they are, and say what they promise."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from integrations.yolo_runs import draw

ROOT = Path(__file__).parents[2]
MAX_LINES = 70
FOR_ONE_SCREEN = {"segmentation.py", "regression.py", "multi_label.py", "fine_tune.py"}
pytestmark = pytest.mark.timeout(900)


def run(*words: str, cwd: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shares(said: str) -> list[float]:
    return [float(found) for found in re.findall(r"([0-9.]+)% of (?:the|its) FLOPs", said)]


def test_the_loop_keeps_its_budget(tmp_path: Path):
    said = run(str(ROOT / "examples" / "own_loop.py"), cwd=tmp_path)
    assert said.count("the model was cut") == 2
    (share,) = shares(said)
    assert share <= 45
    assert float(re.search(r"([0-9.]+)% accuracy", said).group(1)) > 80


def test_the_cut_model_loads_to_the_same_bits(tmp_path: Path):
    assert "bit for bit the same" in run(str(ROOT / "examples" / "cut_resnet50.py"), cwd=tmp_path)


def test_two_processes_make_one_small_model(tmp_path: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    said = run(*words, str(ROOT / "examples" / "two_processes.py"), "out", cwd=tmp_path)
    assert len(shares(said)) == 1
    assert shares(said)[0] <= 50
    assert (tmp_path / "out" / "small" / "model.safetensors").is_file()


def test_a_folder_of_images_gives_a_small_model(tmp_path: Path):
    for label, name in enumerate(("dark", "bright")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = (60 + 120 * label + torch.randint(-40, 40, (64, 64, 3))).to(torch.uint8)
            Image.fromarray(pixels.numpy()).save(tmp_path / "photos" / name / f"{number}.png")
    said = run(str(ROOT / "examples" / "fit_folder.py"), "photos", "test_resnet", cwd=tmp_path)
    before, after = (
        int(found.replace(",", ""))
        for found in re.search(r"([0-9,]+) -> ([0-9,]+) multiply-adds", said).groups()
    )
    assert after <= 0.5 * before
    assert "on 8 images" in said


def figure(said: str, label: str) -> float:
    """The small model's figure in the table of a result."""
    return float(re.search(rf"^ +{label} +(?:\S+ %? *)??(-?[0-9.]+)(?: %)?$", said, re.MULTILINE).group(1))


def kept(said: str) -> float:
    """The share of FLOPs that a result's table says was kept, in percent."""
    return 100 - float(re.search(r"^ +FLOPs .* -([0-9.]+) %$", said, re.MULTILINE).group(1))


def test_segmentation_shows_its_mean_iou_on_the_page(tmp_path: Path):
    said = run(str(ROOT / "examples" / "segmentation.py"), "out", cwd=tmp_path)
    assert figure(said, "Mean IoU") > 80
    assert kept(said) <= 40
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.search(rf">Mean IoU<.*?{figure(said, 'Mean IoU'):.2f} %", page, re.DOTALL)
    assert f"reaches mean IoU {figure(said, 'Mean IoU'):.2f} %" in page
    assert "Top-1" not in page


def test_a_regression_has_mae_and_r2(tmp_path: Path):
    said = run(str(ROOT / "examples" / "regression.py"), cwd=tmp_path)
    assert 0 < figure(said, "MAE") < 0.8
    assert 0.2 < figure(said, "R2") < 1
    assert kept(said) <= 30


def test_several_labels_have_a_mean_ap(tmp_path: Path):
    said = run(str(ROOT / "examples" / "multi_label.py"), cwd=tmp_path)
    assert figure(said, "Mean AP") > 60
    assert kept(said) <= 30


def test_fine_tuning_says_where_it_started(tmp_path: Path):
    said = run(str(ROOT / "examples" / "fine_tune.py"), cwd=tmp_path)
    assert "new head 8: 10 outputs instead of 5; defaults for fine-tuning: lr 0.01" in said
    assert figure(said, "Top-1") > 60
    assert kept(said) <= 50


@pytest.mark.parametrize(
    ("script", "packages", "share"),
    [
        ("hugging_face_trainer.py", ["transformers", "accelerate"], 60),
        ("lightning_module.py", ["lightning"], 50),
        ("accelerate_loop.py", ["accelerate"], 50),
    ],
)
def test_another_trainer_keeps_the_budget(tmp_path: Path, script: str, packages: list[str], share: float):
    for package in packages:
        pytest.importorskip(package, reason=f"needs {package}")
    said = run(str(ROOT / "examples" / script), cwd=tmp_path)
    assert share - 2 < shares(said)[-1] <= share
    assert float(re.search(r"([0-9.]+)% accuracy", said).group(1)) > 70
    assert len((ROOT / "examples" / script).read_text().splitlines()) < 40


def test_a_yolo_is_small_when_ultralytics_has_trained_it(tmp_path: Path):
    pytest.importorskip("ultralytics", reason="needs ultralytics")
    data = str(draw(tmp_path / "pictures", num_pictures=48))
    script = str(ROOT / "examples" / "ultralytics_yolo.py")
    said = run(script, "yolov8n.yaml", data, "4", "64", cwd=tmp_path)
    assert shares(said)[0] <= 50
    (file,) = re.findall(r"^exported: (.+)$", said, re.MULTILINE)
    assert (tmp_path / file).is_file()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path):
    assert len(path.read_text().splitlines()) <= (40 if path.name in FOR_ONE_SCREEN else MAX_LINES)
