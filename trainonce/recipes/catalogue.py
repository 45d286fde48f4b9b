"""Recipes by name: functions that return a run register themselves here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches

from trainonce.errors import SettingError
from trainonce.recipes.run import Run

_RECIPES: dict[str, Callable[[], Run]] = {}
_MODULES = ("demo", "paper")


def recipe(name: str) -> Callable[[Callable[[], Run]], Callable[[], Run]]:
    """Register a function that returns a run under a name of its own."""

    def register(function: Callable[[], Run]) -> Callable[[], Run]:
        if name in _RECIPES:
            raise SettingError(f"the recipe {name!r} exists already. Choose another name.")
        _RECIPES[name] = function
        return function

    return register


def recipe_names() -> tuple[str, ...]:
    """The names of all recipes."""
    for module in _MODULES:
        importlib.import_module(f"trainonce.recipes.{module}")
    return tuple(sorted(_RECIPES))


def find_recipe(name: str) -> Run:
    """The run of that name, such as `find_recipe("cifar10.resnet56")`."""
    if name not in recipe_names():
        near = get_close_matches(name, recipe_names(), n=3, cutoff=0.5)
        advice = f"Did you mean {' or '.join(near)}?" if near else f"Available: {', '.join(recipe_names())}."
        raise SettingError(f"unknown recipe {name!r}. {advice}")
    return _RECIPES[name]()
