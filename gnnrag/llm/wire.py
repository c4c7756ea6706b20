"""The OpenAI protocol's bodies: a request out, a reply in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gnnrag.llm.base import MOST_TOKENS, Reply, Request, estimate_tokens

_LONGEST_NAME = 200


def request_body(request: Request, defaults: Mapping[str, Any], token_limit: str, level: str) -> dict[str, Any]:
    """Return the arguments of a (chat) completion call.

    Args:
        request: what to send.
        defaults: `model`, `temperature`, `seed`, used where the request leaves them open, and `presence_penalty`; null
            ones are left out.
        token_limit: name of the field that limits the reply.
        level: how to send the schema: `json_schema`, `json_object` or `off`.
    """
    own = {"model": request.model, "temperature": request.temperature, "seed": request.seed, "presence_penalty": None}
    sampling = {k: own[k] if own[k] is not None else defaults.get(k) for k in own}
    body = {k: v for k, v in sampling.items() if v is not None}
    if request.stop:
        body["stop"] = list(request.stop)
    if request.raw:
        return body | {"prompt": request.text, "max_tokens": request.max_tokens}
    body |= {"messages": [{"role": m.role, "content": m.content} for m in request.messages]}
    body[token_limit] = request.max_tokens
    if level == "json_schema":
        schema = {"name": "reply", "strict": True, "schema": dict(request.schema or {})}
        body["response_format"] = {"type": level, "json_schema": schema}
    elif level == "json_object":
        body["response_format"] = {"type": level}
    return body


def read_reply(answer: Any, request: Request, model: str, price_in: float, price_out: float) -> Reply:
    """Turn a completion object into a Reply; missing usage is estimated and says so.

    Raises:
        ValueError: it has no reply in it (a proxy's page, an error object sent with status 200).
    """
    try:
        choice = answer.choices[0]
        text = choice.text if request.raw else choice.message.content
        # A model that declines sends its excuse in a field of its own; that is no answer in any format.
        refused = not request.raw and bool(getattr(choice.message, "refusal", None))
        finish = "content_filter" if refused else str(choice.finish_reason or "unknown")
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no choices in {_excerpt(answer)}") from error
    if text is not None and not isinstance(text, str):
        raise ValueError(f"content is {type(text).__name__}, not text")
    prompt_tokens, completion_tokens = _usage(answer)
    is_estimated = prompt_tokens is None or completion_tokens is None
    prompt_tokens = estimate_tokens(request.text) if prompt_tokens is None else prompt_tokens
    completion_tokens = estimate_tokens(text or "") if completion_tokens is None else completion_tokens
    return Reply(
        text=text or "",
        finish_reason=finish[:_LONGEST_NAME],
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost=(prompt_tokens * price_in + completion_tokens * price_out) / 1e6,
        model=str(getattr(answer, "model", None) or model)[:_LONGEST_NAME],
        is_estimated=is_estimated,
    )


def error_details(body: object) -> tuple[object, str]:
    """Return code and message of an error body; servers nest them in different ways."""
    inner = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(inner, Mapping):
        message = inner.get("message") or inner.get("detail") or json.dumps(dict(inner), default=str)
        return inner.get("code"), str(message)
    return None, str(inner or "")


def _usage(answer: Any) -> tuple[int | None, int | None]:
    usage = getattr(answer, "usage", None)
    counts = (getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))
    first, second = (n if isinstance(n, int) and 0 <= n < MOST_TOKENS else None for n in counts)
    return first, second


def _excerpt(answer: Any) -> str:
    text = " ".join(str(answer).split())
    return repr(text if len(text) <= 200 else f"{text[:197]}...")
