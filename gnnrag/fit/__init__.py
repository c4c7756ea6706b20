"""The one training loop: what `training/*.py` share."""
