"""Loads a transformers model and its LoRA adapters: safetensors only, no remote code."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.adapters import check_adapter

logger = logging.getLogger(__name__)


def load_model(folder: Path, kind: str, merged: Path | None, device: str, dtype: str) -> tuple[Any, Any]:
    """Return a model ready for inference, and its tokenizer.

    Args:
        folder: of the base model.
        kind: `causal` or `seq2seq`.
        merged: adapter to put into the weights.
        device: as in `HFConfig`.
        dtype: as in `HFConfig`.

    Raises:
        ConfigError: there is no such device, or nothing that can read the tokenizer.
        ArtefactError: the folder or the adapter is damaged.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

    from gnnrag.weights import check_tokenizer  # torch

    where = _device(device)
    number = getattr(torch, ("bfloat16" if where.type == "cuda" else "float32") if dtype == "auto" else dtype)
    check_tokenizer(folder)
    cls = AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM
    try:
        # Said outright: left open, transformers asks at the terminal whether to run the code that a folder names.
        trusted = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
        model = cls.from_pretrained(folder, dtype=number, use_safetensors=True, **trusted)
    except Exception as error:  # the libraries raise whatever the damage leads to
        problem = " ".join(str(error).split())[:300]
        raise ArtefactError(f"model {str(folder)!r} cannot be loaded ({type(error).__name__}: {problem})") from error
    if merged:
        model = put_on(model, merged, "default").merge_and_unload()
    model = model.to(where).eval()
    # Only what ends and starts a reply is taken over: sampling and penalties are the request's, not the checkpoint's.
    kept = ("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
    model.generation_config = GenerationConfig(**{name: getattr(model.generation_config, name, None) for name in kept})
    logger.info("%s on %s in %s", folder.name, where, number)
    return model, tokenizer


def put_on(model: Any, folder: Path, name: str) -> Any:
    """Return the model with one more adapter, not merged. Raises ArtefactError where it does not fit."""
    from peft import PeftModel

    check_adapter(folder)
    try:
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), adapter_name=name, is_trainable=False)
            return model
        return PeftModel.from_pretrained(model, str(folder), adapter_name=name, is_trainable=False).eval()
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        problem = " ".join(str(error).split())[:300]
        raise ArtefactError(f"adapter {str(folder)!r} does not fit the model ({problem}); give its own base") from error


def _device(name: str) -> Any:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        problem = str(error).splitlines()[0][:150]
        raise ConfigError(f"device={name!r} cannot be used here ({problem}); give auto or cpu") from error
    return device
