"""The recipes by the names that configurations have.

In a file of its own: a run is marked with the recipe it used, and the others may change.
"""

from __future__ import annotations

from benchmarks.harness.recipe import AdamWRecipe, Recipe

RECIPES: dict[str, Recipe] = {
    "short": Recipe(),
    "converged": Recipe(weight_decay=5e-4),
    "fine_tuning": Recipe(peak_learning_rate=0.02, weight_decay=5e-4, warm_up=0.02),
    "language": AdamWRecipe(
        peak_learning_rate=3e-3, weight_decay=0.1, betas=(0.9, 0.95), decays_vectors=False
    ),
}
