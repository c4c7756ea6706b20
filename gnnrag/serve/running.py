"""Runs the application: uvicorn's workers on one socket."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from gnnrag.errors import ConfigError
from gnnrag.serve.settings import Service
from gnnrag.serve.writer import VARIABLE


def run(service: Service, listens: Callable[[str], None] = lambda address: None) -> None:
    """Serve until a signal says to stop; `listens` is called with the address once it is taken.

    Raises ConfigError where it cannot listen there.
    """
    own = service.own
    try:
        family, *_, address = socket.getaddrinfo(own.host, own.port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family)
    except OSError as error:
        raise ConfigError(f"serve.host={own.host} serve.port={own.port}: {error.strerror}; give others") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a kept connection takes 40 ms a request
    log: dict[str, Any] = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
        "loggers": {
            "gnnrag.serve": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
            "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        },
    }
    os.environ[VARIABLE] = json.dumps({"arguments": service.arguments})
    config = uvicorn.Config(
        "gnnrag.serve.app:from_environment", factory=True, workers=own.workers, log_config=log, access_log=False,
        server_header=False, timeout_keep_alive=20, timeout_graceful_shutdown=5, h11_max_incomplete_event_size=1 << 15,
        ws="none", backlog=512, limit_concurrency=2048, timeout_worker_healthcheck=60,
    )  # fmt: skip
    with listening:
        host = f"[{own.host}]" if ":" in own.host else own.host
        listens(f"http://{host}:{listening.getsockname()[1]}")
        Multiprocess(config, [listening]).run()
