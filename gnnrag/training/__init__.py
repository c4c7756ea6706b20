"""Training of every part: one loop, one run directory, and a module or two for each kind of model."""
