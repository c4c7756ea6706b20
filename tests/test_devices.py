"""Where networks run: a GPU where there is one, else the CPU, and no other device than a setting names."""

from __future__ import annotations

import pytest
import torch

from gnnrag import networks
from gnnrag.devices import device_named
from gnnrag.errors import ConfigError
from gnnrag.networks import has_gpu


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_device_that_is_not_there_is_named_with_its_setting() -> None:
    for name in ("nowhere", "cuda:63"):
        with pytest.raises(ConfigError, match=rf"retriever\.device='{name}' cannot be used here .*; give auto or cpu"):
            device_named(name, "retriever.device")


def test_a_driver_alone_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "which", lambda name: f"/usr/bin/{name}")
    assert not has_gpu()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert has_gpu()
