"""Runs beside a scheduler: grids as graphs of jobs (SLURM or this machine), being told to stop, Weights & Biases."""
