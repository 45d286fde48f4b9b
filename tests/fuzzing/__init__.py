"""Files from strangers: random damage and forgeries, the same ones for the same seed.

    python -m tests.fuzzing                                    a few thousand cases, as in the tests
    python -m tests.fuzzing --cases 20000 --seed 1 --target artifact
    python -m tests.fuzzing --target artifact --seed 1 --case 4711     one case again, with its traceback

For every case: the library takes the file, or refuses it with a ValueError of its own, whose message is one
printable line of less than 1000 characters; within 5 s of CPU time; with memory below 2 x file + 300 MB.

To add a target, add one file to `targets/` with one decorated function; nothing else has to be changed:

    @target("image", cases=500)
    def image(place: Path) -> Trial:
        original = ...                          # made once, in `place`, an empty folder

        def trial(dice: random.Random) -> Attempt:
            file = place / "case.png"           # made anew for each case, by `dice` alone
            file.write_bytes(damaged(original, dice))
            return lambda: read_image(file)     # what is measured: raises, or gives anything

        return trial

`mutation` has ways to damage bytes and JSON, and `write_sparse` for files that are larger than the disk.
"""
