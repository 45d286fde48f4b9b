"""`python -m benchmarks.timing.imports`: how long `import trainonce` takes beside `import torch`."""

from __future__ import annotations

import subprocess
import sys
import time

TORCH = "import torch, safetensors.torch"
OURS = f"{TORCH}; import trainonce; trainonce.attach, trainonce.inspect"
NUM_TURNS = 15


def seconds_of(source: str) -> float:
    """Of a fresh process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", source], check=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the fastest of both: what else runs on the machine only ever adds."""
    times = [(seconds_of(TORCH), seconds_of(OURS)) for _ in range(NUM_TURNS)]
    torch, ours = (min(column) for column in zip(*times, strict=True))
    print(
        f"torch and safetensors {torch:.2f} s, with trainonce {ours:.2f} s: {100 * (ours / torch - 1):+.1f} %"
    )


if __name__ == "__main__":
    main()
