"""A forged checkpoint with valid checksums is refused in one line, and the one before it is used."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainonce
from support.digits import convolutional, same, train
from support.runs import make_data, make_net, make_settings, same_weights, stop_run
from support.started import OPTIMIZERS, begun
from trainonce import PrunerError
from trainonce.errors import CheckpointError, RunInterruptedError
from trainonce.pruning import policies
from trainonce.storage.checkpoint import find_newest, save_checkpoint
from trainonce.storage.checkpoint.folder import read_checkpoint
from trainonce.training import fit
from trainonce.training.resuming.saved_state import check_saved
from trainonce.training.session import Session

SETTINGS = {"keep_checkpoints": 3, "model_ema": True, "opt": "adamw", "lr": 0.002, "epochs": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first cut, with checkpoints of several steps."""
    out = tmp_path_factory.mktemp("forged") / "run"
    stop_run(out, at=19, settings=make_settings(**SETTINGS))
    return out


@pytest.fixture(scope="module")
def parts(run: Path) -> tuple[Any, dict[str, Any], int]:
    """The trainer of the run as it is before it is restored, the newest state, and its step."""
    seen: list[Any] = []

    def catch(self: Session, trainer: Any) -> None:
        seen.append(trainer)
        raise RunInterruptedError("seen")

    restore, Session._restore = Session._restore, catch
    try:
        with pytest.raises(RunInterruptedError):
            fit(make_net(), make_data(), settings=make_settings(**SETTINGS), out=run, resume=True)
    finally:
        Session._restore = restore
    newest = find_newest(run / "checkpoints")
    return seen[0], newest.state, newest.step


def paths_in(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a state."""
    items = (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list | tuple) else ()
    )
    return [path, *(way for key, item in items for way in paths_in(item, (*path, key)))]


def changed(state: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """The state with one value changed; the rest is shared."""
    if not path:
        return change(state)
    if isinstance(state, dict):
        return {
            key: changed(item, path[1:], change) if key == path[0] else item for key, item in state.items()
        }
    return type(state)(
        changed(item, path[1:], change) if place == path[0] else item for place, item in enumerate(state)
    )


def snapshot(trainer: Any) -> Any:
    return copy.deepcopy(trainer.state_dict())


def refusal_of(call: Callable[[], object], kind: type[Exception]) -> str | None:
    """What is said if it is refused."""
    try:
        call()
    except kind as error:
        return str(error)
    return None


def test_the_state_itself_is_accepted(parts: tuple[Any, dict[str, Any], int]):
    trainer, state, step = parts
    assert state["trainer"]["pruner"]["cuts"], "the run has cut something by now"
    check_saved(step, state, trainer)


def wrong_shape(value: Any) -> Any:
    return torch.zeros(*value.shape, 2, dtype=value.dtype) if isinstance(value, Tensor) else [[]]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a text": lambda _: "fast",
    "an object": lambda _: {"a": [1, {"b": None}]},
    "another shape": wrong_shape,
    "another dtype": lambda value: value.to(torch.complex64) if isinstance(value, Tensor) else torch.zeros(3),
    "negative": lambda _: -7,
}

FREE = {"alive", "keep_params", "num_skipped", "controller_loss", "top5", "scaler"}


@pytest.mark.parametrize("name", list(CHANGES))
def test_whatever_is_changed_is_refused_or_can_be_put_back(parts: tuple[Any, dict[str, Any], int], name: str):
    trainer, state, step = parts
    before, num_refused, accepted = snapshot(trainer), 0, []
    for path in paths_in(state)[list(CHANGES).index(name) :: 2]:
        forged = changed(state, path, CHANGES[name])
        refusal = refusal_of(lambda: check_saved(step, forged, trainer), CheckpointError)  # noqa: B023
        if refusal is None:
            accepted.append(path)
        else:
            num_refused += 1
            assert refusal.isprintable()
            assert len(refusal) < 1000
    assert same(snapshot(trainer), before)
    assert num_refused > 75
    # Numbers stay numbers: a negative one is a value as good as any where nothing counts with it.
    allowed = [path for path in accepted if path[:2] != ("trainer", "optimizer") or "state" in path]
    for path in allowed if name != "negative" else []:
        assert path[0] == "history" or path[:3] == ("trainer", "pruner", "policy") or path[-1] in FREE, path


@pytest.mark.parametrize("key", ["trainer", "history", "seconds", "cut_at", "loss"])
def test_a_missing_part_is_refused(parts: tuple[Any, dict[str, Any], int], key: str):
    trainer, state, step = parts
    with pytest.raises(CheckpointError):
        check_saved(step, {name: item for name, item in state.items() if name != key}, trainer)


@pytest.mark.parametrize("state", [None, 3, [], "x", {}, {"trainer": None}])
def test_what_is_no_state_at_all_is_refused(parts: tuple[Any, dict[str, Any], int], state: Any):
    with pytest.raises(CheckpointError):
        check_saved(parts[2], state, parts[0])


def test_a_state_of_another_step_is_refused(parts: tuple[Any, dict[str, Any], int]):
    trainer, state, step = parts
    with pytest.raises(CheckpointError, match="step"):
        check_saved(step + 1, state, trainer)


FORGERIES: dict[str, tuple[tuple[Any, ...], Callable[[Any], Any]]] = {
    "no model": (("trainer",), lambda part: {key: value for key, value in part.items() if key != "model"}),
    "weights of the whole model": (("trainer", "model", "body.0.weight"), lambda _: torch.zeros(16, 3, 3, 3)),
    "moments of another shape": (("trainer", "optimizer", "state", 0, "exp_avg"), lambda _: torch.zeros(7)),
    "no moments": (("trainer", "optimizer", "state", 0), lambda _: {}),
    "a learning rate in words": (("trainer", "optimizer", "param_groups", 0, "betas"), lambda _: "fast"),
    "a cut that leaves nothing": (("trainer", "pruner", "cuts", 0), torch.zeros_like),
    "a network of another size": (
        ("trainer", "pruner", "policy", "network", "norm.weight"),
        lambda _: torch.zeros(3),
    ),
    "an average of another size": (("trainer", "average", "model", "head.weight"), lambda _: torch.zeros(1)),
    "a history of texts": (("history", 0), lambda _: "first"),
    "steps without end": (("trainer", "step"), lambda _: 10**30),
    "no seconds": (("seconds",), lambda _: None),
}


@pytest.mark.parametrize("name", list(FORGERIES))
def test_the_previous_checkpoint_is_used_and_the_run_ends_with_the_same_bits(
    run: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
):
    out = tmp_path / "run"
    copy_tree(run, out)
    newest = find_newest(out / "checkpoints")
    path, change = FORGERIES[name]
    save_checkpoint(out / "checkpoints", newest.step, changed(newest.state, path, change), keep_last=3)
    again = partial(
        fit, make_net(), make_data(), settings=make_settings(**SETTINGS), loss=nn.functional.cross_entropy
    )
    result = again(out=out, resume=True)
    told = [
        record.getMessage() for record in caplog.records if "a newer one is invalid" in record.getMessage()
    ]
    assert len(told) == 1
    assert told[0].isprintable()
    assert same_weights(result.model, whole_run().model)


def copy_tree(source: Path, target: Path) -> None:
    for file in source.rglob("*"):
        if file.is_file():
            (target / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / file.relative_to(source)).write_bytes(file.read_bytes())


def whole_run(known: list[Any] = []) -> Any:  # noqa: B006 - trained once for all
    if not known:
        known.append(
            fit(make_net(), make_data(), settings=make_settings(**SETTINGS), loss=nn.functional.cross_entropy)
        )
    return known[0]


def test_if_none_fits_it_is_said_in_one_line(run: Path, tmp_path: Path):
    out = tmp_path / "run"
    copy_tree(run, out)
    for path in (out / "checkpoints").iterdir():
        state = read_checkpoint(path)
        save_checkpoint(
            out / "checkpoints", int(path.name[5:]), changed(state, ("loss",), lambda _: None), keep_last=9
        )
    with pytest.raises(CheckpointError, match=r"^no checkpoint in .* can be used") as caught:
        fit(make_net(), make_data(), settings=make_settings(**SETTINGS), out=out, resume=True)
    assert str(caught.value).isprintable()


def test_another_model_is_told_apart_from_the_one_that_was_trained(run: Path, tmp_path: Path):
    copy_tree(run, tmp_path / "run")
    other = make_net()
    other.head = nn.Linear(24, 7)
    with pytest.raises(CheckpointError, match=r"head\.weight"):
        fit(other, make_data(), settings=make_settings(**SETTINGS), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("size", [2**36])
def test_files_that_this_run_can_not_have_written_are_not_read(run: Path, tmp_path: Path, size: int):
    out = tmp_path / "run"
    copy_tree(run, out)
    newest = find_newest(out / "checkpoints")
    with (newest.path / "state.safetensors").open("r+b") as stream:
        # Sparse: takes no room, and minutes to read.
        stream.truncate(size)
    result = fit(make_net(), make_data(), settings=make_settings(**SETTINGS), out=out, resume=True)
    assert len(result.history) == SETTINGS["epochs"]


WAYS = {
    "controller": policies.Controller,
    "taylor": policies.Taylor,
    "norms": policies.FilterNorm,
    "default": None,
}


@pytest.mark.parametrize("way", list(WAYS))
def test_a_damaged_state_of_a_pruner_is_refused_and_changes_nothing(way: str):
    settings = {} if WAYS[way] is None else {"policy": WAYS[way]}
    model, optimizer, pruner = begun(OPTIMIZERS["sgd"], settings)
    train(model, optimizer, pruner, steps=range(70), size=8)
    state = pruner.state_dict()
    assert state["cuts"]
    model, _, pruner = begun(OPTIMIZERS["sgd"], settings)
    before, weights = copy.deepcopy(pruner.state_dict()), copy.deepcopy(model.state_dict())
    changes = [*list(CHANGES.values())[:4], lambda _: None]
    for place, path in enumerate(paths_in(state)[1:]):
        forged = changed(state, path, changes[place % len(changes)])
        refusal = refusal_of(lambda: pruner.load_state_dict(forged), PrunerError)  # noqa: B023
        if refusal is None:
            # What is no mistake was put back: begin anew.
            model, _, pruner = begun(OPTIMIZERS["sgd"], settings)
        else:
            assert refusal.isprintable()
            assert same(pruner.state_dict(), before), path
            assert same(dict(model.state_dict()), dict(weights)), path
    for nonsense in (None, 3, [], {}, "x"):
        with pytest.raises(PrunerError):
            pruner.load_state_dict(nonsense)


def test_a_users_own_policy_may_save_what_it_likes():
    class Growing(policies.FilterNorm):
        def __init__(self) -> None:
            super().__init__()
            self.seen = [0]

        def state_dict(self) -> dict[str, Any]:
            return {"seen": list(self.seen)}

        def load_state_dict(self, state: Any) -> None:
            self.seen = list(state["seen"])

    model = convolutional(6)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    pruner = trainonce.attach(
        model, optimizer, example=torch.randn(2, 1, 8, 8), total_steps=20, keep_flops=0.5, policy=Growing()
    )
    state = pruner.state_dict() | {"policy": {"seen": [0, 1, 2]}}
    pruner.load_state_dict(state)
    assert pruner.state_dict()["policy"] == {"seen": [0, 1, 2]}
    with pytest.raises(PrunerError, match="Growing can't load its part"):
        pruner.load_state_dict(state | {"policy": {}})
