"""What all tests share."""

from collections.abc import Iterator

import pytest

from trainonce.training.results import outcome


@pytest.fixture(scope="session", autouse=True)
def no_long_measurement() -> Iterator[None]:
    """Runs time their models with as few calls as they may: no test looks at milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "LATENCY_SECONDS", 0.0)
        yield
