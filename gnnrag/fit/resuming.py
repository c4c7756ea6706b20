"""What a training goes on from, the same in every process."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object

from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.fit.rundir import TrainingRun


def agreed_state(run: TrainingRun, accelerator: Accelerator) -> dict[str, Any] | None:
    """Return the saved state of a run, None where there is none.

    Nodes may each read a disk of their own. Every process learns what the others found before any goes on, because
    those that start at another step would wait for each other for hours.

    Raises:
        ArtefactError: the state is damaged.
        GnnragError: the processes found different states.
    """
    problem, state = "", None
    try:
        state = run.load_state()
    except ArtefactError as error:
        problem = str(error)
    progress = dict(state["progress"]) if state else {}
    # The seconds that were counted tell two states of one step apart.
    mine = (problem or (f"step {progress.get('step')}" if state else "no state"), progress.get("seconds"))
    every = gather_object([mine]) if accelerator.num_processes > 1 else [mine]
    if problem:
        raise ArtefactError(problem)
    if len(set(every)) > 1:
        found = "; ".join(f"process {rank}: {what}" for rank, (what, _) in enumerate(every))
        raise GnnragError(
            f"training run {run.path}: processes would go on from different states ({found}). Put run.root on a disk "
            "that all nodes share, or copy the first node's run folder to the others, or set run.fresh=true everywhere"
        )
    return state
