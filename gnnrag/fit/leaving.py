"""The end of a training in several processes: all of them end well, or none."""

from __future__ import annotations

import time

from accelerate import Accelerator

SETTLED_S = 0.2


def leave(accelerator: Accelerator) -> None:
    """End the process group, once all processes are here; nothing may be exchanged afterwards.

    Threads of gloo let go of the tensors of an exchange after it has ended, and take Python's lock for it. An
    interpreter that ends in that moment kills them, and with them its process: SIGABRT after a training that went well,
    one in ten with torch 2.13.
    """
    if accelerator.num_processes > 1:
        accelerator.wait_for_everyone()
        time.sleep(SETTLED_S)  # without Python's lock, which they wait for
    accelerator.end_training()
