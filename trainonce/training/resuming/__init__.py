"""From a checkpoint to a run that goes on."""
