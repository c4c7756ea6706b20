"""Messages to prompt tokens for models that run in this process; training uses the same, so that prompts agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.llm.base import ContextLengthError, Message

_NO_LIMIT = 1_000_000  # tokenizers without a limit give a huge number


def encode(
    tokenizer: Any,
    messages: Sequence[Message],
    chat: str = "auto",
    options: Mapping[str, Any] | None = None,
    raw: bool = False,
    is_seq2seq: bool = False,
) -> list[int]:
    """Return the tokens of a prompt; ConfigError: the tokenizer has no template, or its template refuses the messages.

    `chat`: `auto` is the tokenizer's template, or `plain` for a sequence-to-sequence model without one; `plain` joins
    the texts with empty lines. `options` are variables of the template, such as enable_thinking; `raw` continues the
    joined text.
    """
    if raw:
        return list(tokenizer("".join(m.content for m in messages))["input_ids"])
    if chat == "plain" or (is_seq2seq and not tokenizer.chat_template):
        return list(tokenizer("\n\n".join(m.content for m in messages))["input_ids"])
    if not tokenizer.chat_template:
        raise ConfigError(
            f"the tokenizer of {tokenizer.name_or_path!r} has no chat template: take a chat model, or set "
            "llm.chat=plain for one that was trained on plain prompts"
        )
    from jinja2.exceptions import TemplateError

    try:
        return _apply(tokenizer, messages, options or {})
    except TemplateError as error:
        # Some families know no system turn: what it says then opens the user's.
        if [m.role for m in messages[:2]] == ["system", "user"]:
            joined = Message("user", f"{messages[0].content}\n\n{messages[1].content}")
            try:
                return _apply(tokenizer, (joined, *messages[2:]), options or {})
            except TemplateError:
                pass
        raise ConfigError(f"the chat template of {tokenizer.name_or_path!r} refuses the messages: {error}") from error


def check_length(prompt: int, reply: int, context: int | None, name: str, is_seq2seq: bool = False) -> None:
    """Raise ContextLengthError where prompt and reply (token counts) together pass the context, like a server's 400.

    The reply of a sequence-to-sequence model does not count; `context` None is no limit.
    """
    needed = prompt if is_seq2seq else prompt + reply
    if context is not None and needed > context:
        room = "" if is_seq2seq else f" and {reply} of reply"
        raise ContextLengthError(
            f"{name}: prompt longer than the model's context: {prompt} tokens of prompt{room} do not fit into "
            f"{context}; show fewer or shorter passages, ask for shorter replies, or raise the setting context if the "
            "model can take more"
        )


def own_context(config: Any, tokenizer: Any, is_seq2seq: bool) -> int | None:
    """Return the limit that a model states itself: of positions, or, with relative ones, its tokenizer's."""
    positions = None if is_seq2seq else getattr(config.get_text_config(), "max_position_embeddings", None)
    limit = positions or tokenizer.model_max_length
    return int(limit) if limit and limit < _NO_LIMIT else None


def cut_at(text: str, stop: Sequence[str]) -> str | None:
    """Return the text before the first of the stop strings; None if none is in it."""
    found = [at for at in (text.find(s) for s in stop if s) if at >= 0]
    return text[: min(found)] if found else None


def _apply(tokenizer: Any, messages: Sequence[Message], options: Mapping[str, Any]) -> list[int]:
    turns = [{"role": m.role, "content": m.content} for m in messages]
    encoded = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True, **options)
    return list(encoded["input_ids"])
