"""Every wrong setting is refused in one line that names the key and what it may be, before any data is loaded."""

from pathlib import Path

import pytest

from trainonce.cli import main
from trainonce.data import catalogue
from trainonce.errors import SettingError
from trainonce.recipes.run import Run, run_from
from trainonce.training.limits import limits_of
from trainonce.training.settings import Settings, as_plain

WRONG_FLAGS = [
    ("--keep-flops", value) for value in ("0", "-0.1", "1.5", "nan", "inf", "half", "")
] + [
    ("--keep-params", "0"),
    ("--keep-params", "2"),
    ("--round-to", "0"),
    ("--round-to", "1.5"),
    ("--search-from", "-1"),
    ("--search-from", "1"),
    ("--settle-from", "0"),
    ("--settle-from", "1.01"),
    ("--shrink-from", "nan"),
    ("--controller-share", "0"),
    ("--controller-share", "1.1"),
    ("--epochs", "0"),
    ("--epochs", "-3"),
    ("--epochs", "2.5"),
    ("--epochs", "many"),
    ("--batch-size", "1"),
    ("-b", "0"),
    ("--accumulate", "0"),
    ("--opt", "sdg"),
    ("--lr", "0"),
    ("--lr", "-1"),
    ("--lr", "nan"),
    ("--lr", "1e9"),
    ("--momentum", "1"),
    ("--weight-decay", "-1"),
    ("--sched", "cosin"),
    ("--warmup-epochs", "-1"),
    ("--min-lr", "-1"),
    ("--decay-epochs", "0"),
    ("--decay-rate", "1"),
    ("--clip-grad", "0"),
    ("--smoothing", "1"),
    ("--mixup", "-0.1"),
    ("--cutmix", "nan"),
    ("--model-ema-decay", "1"),
    ("--amp-dtype", "int8"),
    ("--seed", "-1"),
    ("--max-bad-steps", "0"),
    ("--save-minutes", "-1"),
    ("--keep-checkpoints", "0"),
    ("--workers", "-1"),
    ("-j", "two"),
    ("--img-size", "2"),
    ("--num-classes", "1"),
    ("--augment", "everything"),
    ("--max-bad-images", "-1"),
]  # fmt: skip

WRONG_TOGETHER = [
    ["--keep-flops", "0.5", "--keep-params", "0.5"],
    ["--search-from", "0.6"],
    ["--shrink-from", "0.01"],
    ["--search-from", "0.5", "--shrink-from", "0.5"],
    ["--min-lr", "0.5"],
    ["--warmup-epochs", "100"],
    ["--sched", "step"],
    ["--sched", "step", "--decay-epochs", "8", "4"],
    ["--opt", "adamw", "--nesterov"],
    ["--accumulate", "1000"],
    ["--model", "cifar:resnet21"],
    ["--model", "resnet"],
    ["--model", "timm:convnext_attto"],
    ["--data", "cifar11"],
    ["--data", "folder:/no/such/place"],
    ["--data", "imagenet", "--data-dir", "/no/such/place"],
    ["--resume", "/no/such/run"],
    ["--config", "/no/such/file.yaml"],
    ["--kep-flops", "0.5"],
    ["--keep-flops", "0.0001"],
    ["--keep-params", "0.0001"],
    ["--protect", "no.such.layer"],
    ["--protect", "*"],
    ["--device", "toaster"],
    ["--policy", "filternorm"],
    ["--device", "cuda:99"],
    ["--model", "my_models:build"],
    ["--model", "torchvision:inception_v3", "--img-size", "32"],
]


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("data was loaded")

    monkeypatch.setattr(catalogue, "open_data", refuse)
    monkeypatch.setattr("trainonce.recipes.run.open_data", refuse)
    monkeypatch.chdir(tmp_path)


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["train", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert not Path("runs").exists()
    return err


@pytest.mark.parametrize(("flag", "value"), WRONG_FLAGS)
def test_a_value_outside_its_range_is_refused_with_key_and_range(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
):
    message = refusal(["digits.resnet20", flag, value], capsys)
    assert flag in message
    assert "must be" in message


@pytest.mark.parametrize("words", WRONG_TOGETHER)
def test_settings_that_contradict_each_other_or_name_nothing_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
):
    message = refusal([*([] if "--resume" in words else ["digits.resnet20"]), *words], capsys)
    named = [word.removeprefix("--").removeprefix("folder:").replace("-", "_") for word in words]
    assert any(name in message.replace("-", "_") for name in named)


@pytest.mark.parametrize("flag", ["--keep-flops", "--keep-params"])
def test_a_budget_that_can_not_be_reached_is_refused_with_what_can(
    flag: str, capsys: pytest.CaptureFixture[str]
):
    message = refusal(["cifar10.resnet56", flag, "0.0001"], capsys)
    assert f"{flag[2:].replace('-', '_')}=0.0001 can't be reached" in message
    smallest = float(message.partition("Ask for ")[2].partition(" to 1")[0])
    assert 0.0001 < smallest < 0.1
    with pytest.raises(AssertionError, match="data was loaded"):
        main(["train", "cifar10.resnet56", flag, str(smallest)])


@pytest.mark.parametrize("folder", ["taken", "finished", "left"])
def test_a_folder_that_is_taken_is_refused_before_data_is_loaded(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").touch()
    for name in ("finished", "left"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    (tmp_path / "finished" / "report.json").touch()
    assert folder in refusal(["digits.resnet20", "--out", folder], capsys)


@pytest.mark.parametrize("words", [[], ["digits.resnet21"], ["cifar10"], ["--lr", "0.1"]])
def test_a_run_needs_something_to_train(words: list[str], capsys: pytest.CaptureFixture[str]):
    message = refusal(words, capsys)
    assert (
        "nothing to train: pass a recipe, --config, or --model and --data"
        if words in ([], ["--lr", "0.1"])
        else f"unknown recipe {words[0]!r}"
    ) in message


@pytest.mark.parametrize(
    "text",
    [
        "lr: [1, 2]",
        "lr: '0.1'",
        "learning_rate: 0.1",
        "keep_flops: .nan",
        "epochs: true",
        "amp: 1",
        "protect: head",
        "keep: [head]",
        "decay_epochs: 3",
        "- lr",
        "",
        "lr: !!python/object/apply:os.system ['touch HACKED']",
        "lr: {a",
        "model: 3",
        "1: 2",
        "opt: null",
    ],
)
def test_a_wrong_file_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "config.yaml").write_text(text)
    refusal(["digits.resnet20", "--config", "config.yaml"], capsys)
    assert not (tmp_path / "HACKED").exists()


def test_the_printed_configuration_is_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [
        "train",
        "cifar10.resnet56",
        "--epochs",
        "30",
        "--lr",
        "0.2",
        "--protect",
        "fc",
        "stages.0.*",
        "--no-download",
    ]
    assert main([*words, "--print-config"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "again.yaml").write_text(text)
    assert main(["train", "--config", "again.yaml", "--print-config"]) == 0
    assert capsys.readouterr().out == text
    assert "lr: 0.2" in text
    assert "download: false" in text


def test_flags_win_over_files_and_files_over_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "config.yaml").write_text("lr: 0.3\nbatch_size: 32\n")
    assert main(["train", "digits.resnet20", "--config", "config.yaml", "--lr", "0.4", "--print-config"]) == 0
    text = capsys.readouterr().out
    assert "lr: 0.4" in text
    assert "batch_size: 32" in text
    assert "weight_decay: 0.0005" in text


def test_plain_values_give_the_same_run():
    run = Run(keep_flops=0.3, decay_epochs=(3.0, 4.5), sched="step", protect=("a",), lr=1)
    assert run_from(as_plain(run), Run()) == run_from({"lr": 1.0}, run)


@pytest.mark.parametrize("name", limits_of(Run))
def test_every_setting_says_what_it_is_for_and_accepts_its_default(name: str):
    limits = limits_of(Run)[name]
    assert limits.help
    assert limits.describe()
    default = getattr(Run(), name)
    assert default is None or (limits.several and default == ()) or limits.allows(default)


def test_the_reference_lists_every_setting_with_its_default():
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    for name, limits in limits_of(Run).items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `--{name.replace('_', '-')}` |")]
        default = getattr(Run(), name)
        shown = (
            "none"
            if default is None or default == ()
            else str(default).lower()
            if isinstance(default, bool)
            else str(default)
        )
        assert row.endswith(f"| {shown} |")
        assert limits.help in row


@pytest.mark.parametrize(
    "changes",
    [{"lr": "0.1"}, {"epochs": 1.0}, {"amp": 1}, {"protect": ["a"]}, {"keep_flops": True}, {"seed": None}],
)
def test_wrong_types_are_refused_in_code_too(changes: dict):
    with pytest.raises(SettingError, match=next(iter(changes))):
        Settings(**changes)


def test_a_setting_that_was_renamed_is_refused_with_its_new_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "config.yaml").write_text("keep: [head]")
    message = refusal(["digits.resnet20", "--config", "config.yaml"], capsys)
    assert "the setting keep is called protect since trainonce 0.2" in message
    assert run_from({"keep": []}, Run()) == Run()
    assert "Did you mean --protect?" in refusal(["digits.resnet20", "--keep", "head"], capsys)
