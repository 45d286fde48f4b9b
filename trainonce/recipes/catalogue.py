"""Recipes by name: functions that return a run register themselves here."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from trainonce.errors import SettingError
from trainonce.messages.suggestions import did_you_mean
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
        advice = did_you_mean(name, recipe_names(), most=3) or f"Available: {', '.join(recipe_names())}."
        raise SettingError(f"unknown recipe {name!r}. {advice}")
    return _RECIPES[name]()
