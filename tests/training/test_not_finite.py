"""Steps that are not finite change nothing, and a run of them stops."""

import pytest
import torch

from support.runs import (
    Counter,
    make_data,
    make_net,
    make_settings,
    weights,
)
from trainonce.errors import DivergedError
from trainonce.runs.report.live import Moment
from trainonce.training import fit


def test_what_is_not_finite_changes_nothing():
    seen = []

    def spoil(value):
        seen.append(weights(net))
        return value * float("nan")

    class Watch:
        def show(self, moment: Moment) -> None: ...
        def say(self, line: str) -> None:
            if "skipped" in line:
                seen.append(weights(net))

        def close(self) -> None: ...

    net = make_net()
    result = fit(
        net,
        make_data(),
        settings=make_settings(keep_flops=1, epochs=2),
        loss=Counter({3}, spoil),
        view=Watch(),
    )
    assert result.report["num_skipped"] == 1
    assert all(torch.isfinite(tensor).all() for tensor in net.state_dict().values())
    before, after = seen
    parameters = [name for name, _ in net.named_parameters()]
    assert all(torch.equal(before[name], after[name]) for name in parameters)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value * float("nan"),
        lambda value: value + float("inf"),
        lambda value: value * 1e38 * 1e38,
    ],
)
def test_a_run_that_stays_infinite_stops_and_names_the_step(spoil):
    net = make_net()
    with pytest.raises(DivergedError, match="3 steps in a row, up to step 5"):
        fit(
            net,
            make_data(),
            settings=make_settings(keep_flops=1, max_bad_steps=3),
            loss=Counter(set(range(4, 99)), spoil),
        )
    assert all(torch.isfinite(tensor).all() for tensor in net.state_dict().values())


def test_a_run_that_skips_most_of_its_steps_says_so_at_its_end():
    spoiled = Counter(set(range(99)), lambda value: value * float("nan"))
    settings = make_settings(epochs=2, max_bad_steps=100)
    with pytest.raises(
        DivergedError,
        match=(
            r"^8 of 8 steps were skipped because loss or gradients were not finite[^\n]* start a new run\.$"
        ),
    ):
        fit(make_net(), make_data(), settings=settings, loss=spoiled, quiet=True)


def test_bad_pixels_leave_the_running_statistics_alone():
    (images, labels), validation = make_data()
    images[7] = float("nan")
    net = make_net()
    result = fit(net, ((images, labels), validation), settings=make_settings(epochs=3, keep_flops=1))
    assert result.report["num_skipped"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in net.state_dict().values())
