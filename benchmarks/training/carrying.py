"""Recorded runs carried over to changed code: `python -m benchmarks.training.carrying CHECKOUT`.

CHECKOUT holds the code that the records are of; it may have the old layout (`benchmarks/accuracy`). Every
contender with records makes a short run there and one here. Those whose two runs are equal to the last digit,
in everything that the older code recorded, are carried over: a record then names the code it counts for
(`of_code`) and the one that made it (`made_by_code`). The others are named; their records stay as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.children import child_environment
from benchmarks.peers.hesso import MISSING, PYTHON
from benchmarks.sheets.sheet import ROOT
from benchmarks.training.catalogue import CONTENDERS
from benchmarks.training.configuration import Configuration
from benchmarks.training.fingerprint import fingerprint
from benchmarks.training.records import PLACE, read_records, replace_records

SHORT: dict[str, Any] = {"keep_flops": 0.3, "seed": 0, "epochs": 4, "num_images": 512}
LONG_ENOUGH_FOR_HESSO: dict[str, Any] = {"keep_flops": 0.5, "seed": 0, "epochs": 12, "batch_size": 64}
"""In fewer steps it does not come to prune anything."""

WITHOUT_MEANING = frozenset(("of_code", "made_by_code", "seconds", "date", "versions", "made_here"))

_FIND = """
import importlib, json, sys

def find(*names):
    for name in names:
        try:
            return importlib.import_module("benchmarks." + name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("benchmarks."):
                raise
"""
_ADD = """
# In the old layout, importing these adds their contenders to the others.
find("studies.variants"), find("shapes.catalogue")
"""
_MARKS = f"""{_FIND}{_ADD}
contenders = find("training.catalogue", "accuracy.contenders").CONTENDERS
fingerprint = find("training.fingerprint", "accuracy.fingerprint").fingerprint
print(json.dumps({{name: fingerprint(name) for name in contenders}}))
"""
_RUN = """
find("training.child", "accuracy.child").main()
"""


def main() -> int:
    """Give 1 if a contender's runs differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training.carrying", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "checkout", metavar="CHECKOUT", type=Path, help="a checkout of the code that the records are of"
    )
    checkout: Path = parser.parse_args().checkout.resolve()
    before = marks_of(checkout)
    sheets = {path: read_records(path) for path in sorted(PLACE.glob("*.runs.jsonl"))}
    names = {
        name
        for records in sheets.values()
        for record in records.values()
        if record["of_code"] == before.get(name := contender_of(record)) and fingerprint(name) != before[name]
    }
    if alone := {name for name in names if CONTENDERS[name].needs_peer_python and not PYTHON.exists()}:
        print(f"not compared, so not carried over: {', '.join(sorted(alone))}. {MISSING}", file=sys.stderr)
        names -= alone
    different = compare_short_runs(sorted(names), checkout, before)
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
    made_by = record.get("made_by_code", record["of_code"])
    return {**record, "made_by_code": made_by, "of_code": fingerprint(name)}


def marks_of(checkout: Path) -> dict[str, str]:
    """The fingerprint of every contender by the code of a checkout."""
    return json.loads(_run_in(checkout, sys.executable, "-c", _MARKS, stdout=subprocess.PIPE).stdout)


def compare_short_runs(names: list[str], checkout: Path, before: dict[str, str]) -> set[str]:
    """The contenders whose short runs here and there differ."""
    here = _short_runs(names, ROOT, {name: fingerprint(name) for name in CONTENDERS})
    there = _short_runs(names, checkout, before)
    return {name for name in names if not holds(meaning_of(there[name]), meaning_of(here[name]))}


def _short_runs(names: list[str], checkout: Path, marks: dict[str, str]) -> dict[str, dict[str, Any]]:
    """One short run on digits of each contender by the code of a checkout, made anew."""
    runs = {}
    # A run that needs another finds it in the cache.
    for name in dict.fromkeys(one for asked in names for one in (CONTENDERS[asked].needs, asked) if one):
        is_peer = CONTENDERS[name].needs_peer_python
        configuration = Configuration(contender=name, **(LONG_ENOUGH_FOR_HESSO if is_peer else SHORT))
        result = checkout / configuration.result_file.relative_to(ROOT)
        result.unlink(missing_ok=True)
        result.parent.mkdir(parents=True, exist_ok=True)
        python, script = (PYTHON, _FIND + _RUN) if is_peer else (sys.executable, _FIND + _ADD + _RUN)
        _run_in(checkout, str(python), "-c", script, configuration.to_json(), marks[name])
        runs[name] = json.loads(result.read_text(encoding="utf-8"))
        print(f"{checkout.name}: {name} {runs[name]['accuracy']:.2f} %", flush=True)
    return runs


def _run_in(checkout: Path, *command: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    """A command with the code of a checkout, whose modules may have other names than here."""
    is_peer = command[0] != sys.executable
    environment = child_environment(threads=1, is_peer=is_peer, root=checkout)
    return subprocess.run(command, cwd=checkout, env=environment, check=True, **settings)


def holds(before: Any, now: Any) -> bool:
    """Whether all that the older code recorded is the same now; newer code may record more."""
    if isinstance(before, dict) and isinstance(now, dict):
        return all(key in now and holds(value, now[key]) for key, value in before.items())
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(holds, before, now))
    return type(before) is type(now) and before == now


def meaning_of(value: Any) -> Any:
    """What must be equal: everything but marks, dates, seconds, and the module of a plan's model."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in WITHOUT_MEANING}
        if isinstance(kept.get("plan"), str):
            plan = json.loads(kept["plan"])
            kept["plan"] = plan | {"model": plan["model"].rpartition(".")[2]}
        return {key: meaning_of(item) for key, item in kept.items()}
    return [meaning_of(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
