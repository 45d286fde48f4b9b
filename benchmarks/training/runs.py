"""Many runs side by side: takes configurations, gives their results and why some failed.

What has been run is not run again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.children import child_environment
from benchmarks.harness.images import load_images
from benchmarks.sheets.sheet import ROOT, heading_of_runs
from benchmarks.sheets.waiting import waiting
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import RUNS, Configuration
from benchmarks.training.fingerprint import code_of
from benchmarks.training.options import said_seeds, said_sizes
from benchmarks.training.records import write_records
from benchmarks.training.summary import Rows, by_run, results_by_row
from benchmarks.training.tasks import task_of

POLL_SECONDS = 1.0


def run_and_record(
    wanted: Sequence[Configuration],
    arguments: argparse.Namespace,
    introduction: str,
    *,
    peer_python: Path | None = None,
) -> tuple[Rows, dict[str, str], tuple[list[str], str]]:
    """Run what is missing of these runs and record all that there is beside the sheet.

    Gives it row by row, why runs failed, by name, and the first blocks of the sheet.
    """
    if wanted[0].task == "images" and wanted[0].data is None:
        load_images(arguments.data)  # says kindly what is used instead
    # Reading the data here puts it into the cache before the children ask for it.
    task = task_of(wanted[0])
    failures = {} if arguments.table_only else run_missing(wanted, arguments, peer_python)
    rows = results_by_row(wanted, accept_old=arguments.keep_cache)
    write_records(arguments.out, by_run(rows))
    found = [result for results in rows.values() for result in results]
    words = introduction.format(**said_sizes(arguments, task))
    return rows, failures, (heading_of_runs(found, seeds=said_seeds(wanted)), words)


def run_missing(
    wanted: Sequence[Configuration], arguments: argparse.Namespace, peer_python: Path | None = None
) -> dict[str, str]:
    """What was run by other code is missing, too, unless old results are accepted.

    And, if asked to run afresh, what was run elsewhere.
    """
    read = {dense.name for configuration in wanted for dense in configuration.needed}
    missing = [
        configuration
        for configuration in _with_needed(wanted)
        if configuration.result(
            of_code=None if arguments.keep_cache else code_of(configuration),
            made_here=arguments.afresh,
        )
        is None
        or (configuration.name in read and not configuration.weights_file.exists())
    ]
    for configuration in missing:
        # Of a run by other code; one that was stopped writes its epochs again when it goes on.
        configuration.epochs_file.unlink(missing_ok=True)
    failures: dict[str, str] = {}
    # Those that others need come first; the others wait for the wave before.
    waits = [bool(CONTENDERS[c.contender].needs or c.needed) for c in missing]
    waves = [[c for c, late in zip(missing, waits, strict=True) if late is wave] for wave in (False, True)]
    with waiting(
        sum(configuration.epochs for configuration in missing), f"{len(missing)} runs, epochs"
    ) as bar:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(POLL_SECONDS):
                bar.arrive(sum(configuration.num_epochs_done() for configuration in missing))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        for wave in waves:
            with ThreadPoolExecutor(max_workers=arguments.workers) as pool:
                reasons = pool.map(
                    lambda configuration: _run(configuration, arguments.threads, peer_python), wave
                )
                failures |= {c.name: reason for c, reason in zip(wave, reasons, strict=True) if reason}
        over.set()
        watcher.join()
        bar.arrive(sum(configuration.num_epochs_done() for configuration in missing))
    for name, reason in failures.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return failures


def _with_needed(wanted: Sequence[Configuration]) -> list[Configuration]:
    found: dict[str, Configuration] = {}
    for configuration in wanted:
        needed = CONTENDERS[configuration.contender].needs
        before = [*configuration.needed, *([replace(configuration, contender=needed)] if needed else [])]
        for one in (*before, configuration):
            found.setdefault(one.name, one)
    return list(found.values())


def _run(configuration: Configuration, threads: int, peer_python: Path | None) -> str | None:
    """One child; None if it went well."""
    is_peer = CONTENDERS[configuration.contender].needs_peer_python
    if is_peer and peer_python is None:
        return "not installed: make hesso"
    python = str(peer_python) if is_peer else sys.executable
    RUNS.mkdir(parents=True, exist_ok=True)
    words = RUNS / f"{configuration.name}.log"
    with words.open("a") as log:
        print(time.strftime("started %Y-%m-%d %H:%M:%S"), file=log, flush=True)
        child = (configuration.to_json(), code_of(configuration))
        command = [python, "-m", "benchmarks.training.child", *child]
        environment = child_environment(threads=threads, is_peer=is_peer)
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log).returncode
    return None if code == 0 else (words.read_text().strip().splitlines() or ["no word"])[-1]
