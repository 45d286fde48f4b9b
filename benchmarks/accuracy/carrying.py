"""Recorded runs carried over to changed code: `python -m benchmarks.accuracy.carrying CHECKOUT`.

CHECKOUT holds the code that the records are of. Every contender with records makes a short run there and one
here. Those whose two runs are equal to the last digit are carried over: a record then names the code it
counts for (`of_code`) and the one that made it (`made_by_code`). The others are named, and their records stay
as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.fingerprint import fingerprint
from benchmarks.accuracy.records import PLACE, read_records, replace_records
from benchmarks.sheet import ROOT
from benchmarks.studies import variants  # noqa: F401 - makes the variants known as contenders

SHORT: dict[str, Any] = {"keep_flops": 0.3, "seed": 0, "epochs": 4, "num_images": 512}
WITHOUT_MEANING = frozenset(("of_code", "made_by_code", "seconds", "date", "versions", "made_here"))
_MARKS = """
import json, sys
import benchmarks.studies.variants
from benchmarks.accuracy.configuration import Configuration
from benchmarks.accuracy.contenders import CONTENDERS
from benchmarks.accuracy.fingerprint import fingerprint
print(json.dumps({name: fingerprint(name) for name in CONTENDERS}))
"""


def main() -> int:
    """Give 1 if a contender's runs differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.carrying", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "checkout", metavar="CHECKOUT", type=Path, help="a checkout of the code that the records are of"
    )
    checkout: Path = parser.parse_args().checkout.resolve()
    before = marks_of(checkout)
    sheets = {path: read_records(path) for path in sorted(PLACE.glob("*.runs.jsonl"))}
    found = [record for records in sheets.values() for record in records.values()]
    names = {
        record["configuration"]["contender"]
        for record in found
        if record["of_code"] == before.get(contender_of(record))
    }
    names = {name for name in names if fingerprint(name) != before[name]}
    different = compare_short_runs(sorted(names), checkout)
    for path, records in sheets.items():
        replace_records(
            path, {name: carried(record, before, names - different) for name, record in records.items()}
        )
    print(f"carried over: {', '.join(sorted(names - different)) or 'nothing'}")
    if different:
        print(f"not equal, so not carried over: {', '.join(sorted(different))}", file=sys.stderr)
    return 1 if different else 0


def contender_of(record: dict[str, Any]) -> str:
    return record["configuration"]["contender"]


def carried(record: dict[str, Any], before: dict[str, str], names: set[str]) -> dict[str, Any]:
    """The record for today's code if it is one of `names` and of the code `before`; else as it is."""
    name = contender_of(record)
    if name not in names or record["of_code"] != before[name]:
        return record
    return {
        **record,
        "made_by_code": record.get("made_by_code", record["of_code"]),
        "of_code": fingerprint(name),
    }


def marks_of(checkout: Path) -> dict[str, str]:
    """The fingerprint of every contender by the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    words = subprocess.run(
        [sys.executable, "-c", _MARKS], cwd=checkout, env=environment, stdout=subprocess.PIPE, check=True
    )
    return json.loads(words.stdout)


def compare_short_runs(names: list[str], checkout: Path) -> set[str]:
    """The contenders whose short runs here and there differ."""
    here, there = (_short_runs(names, place) for place in (ROOT, checkout))
    return {name for name in names if _meaning(here[name]) != _meaning(there[name])}


def _short_runs(names: list[str], checkout: Path) -> dict[str, dict[str, Any]]:
    """One short run on digits of each contender by the code of a checkout, made anew."""
    marks, runs = marks_of(checkout), {}
    # A run that needs another finds it in the cache.
    for name in dict.fromkeys(one for asked in names for one in (CONTENDERS[asked].needs, asked) if one):
        configuration = Configuration(contender=name, **SHORT)
        result = checkout / configuration.result_file.relative_to(ROOT)
        result.unlink(missing_ok=True)
        result.parent.mkdir(parents=True, exist_ok=True)
        child = f"benchmarks.{CONTENDERS[name].package}.child"
        command = [sys.executable, "-m", child, configuration.to_json(), marks[name]]
        subprocess.run(
            command,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
            check=True,
        )
        runs[name] = json.loads(result.read_text(encoding="utf-8"))
        print(f"{checkout.name}: {name} {runs[name]['accuracy']:.2f} %", flush=True)
    return runs


def _meaning(value: Any) -> Any:
    """What must be equal: everything but marks, dates and seconds."""
    if isinstance(value, dict):
        return {key: _meaning(item) for key, item in value.items() if key not in WITHOUT_MEANING}
    return [_meaning(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
