"""What every benchmark trains: images, models, recipe, and what it is counted and kept with."""
