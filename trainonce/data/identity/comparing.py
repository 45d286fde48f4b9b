"""What has changed about a run's data, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainonce.data.file_names import shown
from trainonce.data.identity.describing import PARTS

MAX_CHANGES = 6
"""Changes per line; the first ones explain the others."""
CLOSE = 1e-3
"""Tolerance for measured numbers, such as the mean of all pixels."""
MEASURED = frozenset(("normalization",))
"""Settings that follow from the images: reported only if nothing else has changed."""

Key = tuple[str, str, str]
"""Split, class, and the file's name in it."""
Files = dict[Key, tuple[Any, Any]]
"""From keys to sizes and digests."""


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What was added, removed or changed in the splits that both have; None if nothing was."""
    names = {part: f"the {part} data" for part in PARTS if part in before and part in now}
    changes = list(dict.fromkeys(_contents(before, now, names)))
    explained = MEASURED if changes else frozenset()
    changes += _settings(before.get("settings") or {}, now.get("settings") or {}, without=explained)
    told = [*changes[:MAX_CHANGES], *(["and more"] if len(changes) > MAX_CHANGES else [])]
    return "; ".join(told) or None


def _contents(before: Mapping[str, Any], now: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """What changed in some parts; `names` says what a line calls each."""
    parts = [*names]
    renamed = _renamed(before, now, parts)
    changes = [f"class {_quoted(old)} is now {_quoted(new)}" for old, new in renamed.items()]
    changes += _classes(*_class_names(before, now, parts), renamed)
    changes += _listings(before, now, parts, renamed)
    for part, what in names.items():
        changes += _part(before[part], now[part], what)
    return changes or [
        f"the order or the labels of the images of {what} changed"
        for part, what in names.items()
        if before[part].get("order") != now[part].get("order")
    ]


def _class_names(
    before: Mapping[str, Any], now: Mapping[str, Any], parts: Sequence[str]
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """The classes that both were told, or those that the folders of their files tell."""
    if before.get("classes") is None or now.get("classes") is None:
        old, new = (sorted(_by_class(_files(found, parts))) or None for found in (before, now))
        return old, new
    return before["classes"], now["classes"]


def _classes(
    before: Sequence[str] | None,
    now: Sequence[str] | None,
    renamed: Mapping[str, str],
) -> Iterator[str]:
    if before is None or now is None:
        return
    new = [name for name in now if name not in before and name not in renamed.values()]
    gone = [name for name in before if name not in now and name not in renamed]
    for names, word in ((new, "new"), (gone, "missing")):
        if len(names) == 1:
            yield f"class {_quoted(names[0])} is {word}"
        elif names:
            yield f"{len(names)} classes are {word}, such as {_quoted(names[0])}"
    if not (new or gone or renamed) and list(before) != list(now):
        yield "the order of the classes changed"


def _renamed(before: Mapping[str, Any], now: Mapping[str, Any], parts: Sequence[str]) -> dict[str, str]:
    """From the old to the new name of every class whose files are all the same."""
    old, new = _by_class(_files(before, parts)), _by_class(_files(now, parts))
    come = {repr(sorted(new[name].items())): name for name in sorted(new.keys() - old.keys(), reverse=True)}
    found: dict[str, str] = {}
    for name in sorted(old.keys() - new.keys()):
        other = come.pop(repr(sorted(old[name].items())), None)
        if other is not None:
            found[name] = other
    return found


def _by_class(files: Files) -> dict[str, dict[tuple[str, str], Any]]:
    found: dict[str, dict[tuple[str, str], Any]] = {}
    for (part, name, rest), value in files.items():
        found.setdefault(name, {})[part, rest] = value
    return found


def _listings(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    parts: Sequence[str],
    renamed: Mapping[str, str],
) -> Iterator[str]:
    """Files that were added, removed, changed or moved, except in new and missing classes."""
    found, new = _files(before, parts), _files(now, parts)
    old = {(part, renamed.get(name, name), rest): value for (part, name, rest), value in found.items()}
    classes = {name for _, name, _ in old} & {name for _, name, _ in new}
    come = {key[1:]: key for key in new if key not in old and key[1] in classes}
    gone = {key[1:]: key for key in old if key not in new and key[1] in classes}
    moved = {name: None for name in come if name in gone and not _differs(old[gone[name]], new[come[name]])}
    yield from _images([name for name in come if name not in moved], "added")
    yield from _images([name for name in gone if name not in moved], "removed")
    yield from _images([key[1:] for key in new if key in old and _differs(old[key], new[key])], "changed")
    for part in PARTS:
        left = [name for name in moved if gone[name][0] == part]
        yield from _images(left, f"moved from {part} to {'validation' if part == 'training' else 'training'}")


def _differs(before: tuple[Any, Any], now: tuple[Any, Any]) -> bool:
    # If one was not read, only the sizes are known.
    return before[0] != now[0] or (before[1] is not None and now[1] is not None and before[1] != now[1])


def _images(names: Sequence[tuple[str, str]], word: str) -> Iterator[str]:
    if names:
        count = "1 image was" if len(names) == 1 else f"{len(names)} images were"
        yield f"{count} {word}, such as {shown('/'.join(names[0]) if names[0][1] else names[0][0])}"


def _files(found: Mapping[str, Any], parts: Sequence[str]) -> Files:
    return {
        (part, name, rest): (value[0], value[1])
        for part in parts
        for name, files in (found[part].get("files") or {}).items()
        for rest, value in files.items()
    }


def _part(before: Mapping[str, Any], now: Mapping[str, Any], what: str) -> Iterator[str]:
    if before["kind"] != now["kind"]:
        old, new = (_KINDS.get(found["kind"], "something else") for found in (before, now))
        yield f"{what} was {old} and is {new} now"
    elif before["kind"] == "tensors":
        yield from _tensors(before["tensors"], now["tensors"], what)
    elif before["kind"] == "files":
        yield from _sums(before.get("sums"), now.get("sums"), what)
        is_listed = before.get("sums") is None
        if is_listed and before.get("files") == now.get("files") and before["count"] != now["count"]:
            yield f"{now['count']} images of {what} can be read, {before['count']} before"
    elif before["count"] != now["count"]:
        yield f"{what} has {now['count']} samples, {before['count']} before"
    elif before["kind"] == "joined":
        for number, (one, other) in enumerate(zip(before["of"], now["of"], strict=False)):
            yield from _below(one, other, f"part {number} of {what}")
    elif before["kind"] in ("chosen", "drawn"):
        yield from _below(before["of"], now["of"], f"the source of {what}")
        if before.get("indices") != now.get("indices"):
            yield f"the indices of {what} changed"
        if (before.get("weights"), before.get("replacement")) != (now.get("weights"), now.get("replacement")):
            yield f"the sampler weights of {what} changed"


def _below(before: Mapping[str, Any], now: Mapping[str, Any], what: str) -> list[str]:
    """What changed in data that other data is made from."""
    part = PARTS[0]
    return _contents({part: before}, {part: now}, {part: what})


_KINDS = {
    "tensors": "tensors",
    "files": "image files",
    "joined": "a ConcatDataset",
    "chosen": "a Subset",
    "drawn": "draws of a sampler",
    "other": "a data set",
}


def _tensors(before: Mapping[str, Any], now: Mapping[str, Any], what: str) -> Iterator[str]:
    if before.keys() != now.keys():
        yield f"{what} has {len(now)} tensors, {len(before)} before"
        return
    for name, old in before.items():
        new = now[name]
        if (old["shape"], old["dtype"]) != (new["shape"], new["dtype"]):
            shapes = [f"{found['dtype']} of shape {tuple(found['shape'])}" for found in (new, old)]
            yield f"the {shown(name)} of {what} are {shapes[0]}, {shapes[1]} before"
        elif old["digest"] != new["digest"]:
            yield f"the values of the {shown(name)} of {what} changed"


def _sums(before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, what: str) -> Iterator[str]:
    """Changes per class, for listings that are too long to record file by file."""
    if before is None and now is None:
        return
    if before is None or now is None:
        yield f"{what} has {'more' if before is None else 'fewer'} images"
        return
    for name in sorted(before.keys() & now.keys()):
        old, new = before[name], now[name]
        if old["count"] != new["count"]:
            yield f"class {_quoted(name)} of {what} has {new['count']} images, {old['count']} before"
        elif old["digest"] != new["digest"]:
            yield f"names, sizes or contents of images of class {_quoted(name)} of {what} changed"


def _settings(before: Mapping[str, Any], now: Mapping[str, Any], *, without: frozenset[str]) -> Iterator[str]:
    if not before or not now:
        # Data sets of torch have none; that it is another kind of data is told above.
        return
    for name in sorted((before.keys() | now.keys()) - without):
        if not _same(before.get(name), now.get(name)):
            yield f"{name} is {shown(now.get(name))}, {shown(before.get(name))} before"


def _same(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(_same, before, now))
    if isinstance(before, float) and isinstance(now, float):
        # Another version of an image library may decode a file slightly differently.
        return abs(before - now) <= CLOSE
    return before == now


def _quoted(name: str) -> str:
    return f"'{shown(name)}'"
