"""A run's mark changes with what the code does, and with nothing else."""

from benchmarks.accuracy.carrying import carried
from benchmarks.accuracy.fingerprint import fingerprint, meanings

SOURCE = '''"""Words."""
import torch
from trainonce.surgery import proof
from trainonce.structure.plan import Plan

LIMIT = 3

def one(x):
    """Words."""
    return proof.modes_kept(x) + LIMIT
'''


def marks(*sources: str) -> list[str]:
    return sorted(meaning for source in sources for meaning in meanings(source))


def test_words_imports_and_places_do_not_count():
    head, constant, function = SOURCE.split("\n\n", 2)
    assert marks(SOURCE) == marks(SOURCE.replace("Words", "Other words"))
    assert marks(SOURCE) == marks(
        SOURCE.replace("from trainonce import proof", "from trainonce.surgery.slicing import proof")
    )
    assert marks(SOURCE) == marks(f"{head}\n{constant}", f"{head}\n{function}")
    renamed = SOURCE.replace("import proof", "import proving").replace("proof.modes", "proving.modes")
    assert marks(SOURCE) == marks(renamed)
    direct = SOURCE.replace("import proof", "import proof, modes_kept").replace("proof.modes", "modes")
    assert marks(SOURCE) == marks(direct)


def test_what_is_computed_counts():
    for before, after in (
        ("LIMIT = 3", "LIMIT = 4"),
        ("+ LIMIT", "- LIMIT"),
        ("modes_kept", "modes_lost"),
        ("def one", "def two"),
    ):
        assert marks(SOURCE) != marks(SOURCE.replace(before, after))


def test_a_record_is_carried_over_only_from_the_code_that_was_compared():
    record = {"configuration": {"contender": "ours"}, "of_code": "old", "accuracy": 71.0}
    moved = carried(record, {"ours": "old"}, {"ours"})
    assert moved == {**record, "of_code": fingerprint("ours"), "made_by_code": "old"}
    assert carried({**record, "made_by_code": "older"}, {"ours": "old"}, {"ours"})["made_by_code"] == "older"
    assert carried(record, {"ours": "another"}, {"ours"}) == record
    assert carried(record, {"ours": "old"}, set()) == record
