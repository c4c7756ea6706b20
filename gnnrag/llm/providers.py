"""Providers of language models as data: address, environment variable of the key, unsupported parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Structured = Literal["auto", "json_schema", "json_object", "off"]
TokenLimit = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True)
class Provider:
    """A server of the OpenAI chat protocol.

    `structured` is the strictest response format that it takes (auto: it is asked), `without` are parameters that it
    refuses.
    """

    base_url: str
    api_key_env: str | None = None
    model: str = ""
    structured: Structured = "auto"
    token_limit: TokenLimit = "max_tokens"
    without: tuple[str, ...] = ()


PROVIDERS = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-4o-mini"),
    "anthropic": Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", structured="off", without=("seed",)),
    "azure": Provider("", "AZURE_OPENAI_API_KEY", token_limit="max_completion_tokens"),  # https://NAME.../openai/v1
    "dashscope": Provider(
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY", structured="json_object"
    ),
    "deepseek": Provider("https://api.deepseek.com", "DEEPSEEK_API_KEY", structured="json_object"),
    "fireworks": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": Provider("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", without=("seed",)),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY", without=("seed",)),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY"),
    # Servers of one's own, at the address that each takes by default.
    "llamacpp": Provider("http://127.0.0.1:8080/v1"),
    "lmstudio": Provider("http://127.0.0.1:1234/v1"),
    "ollama": Provider("http://127.0.0.1:11434/v1"),
    "transformers": Provider("http://127.0.0.1:8000/v1"),  # `transformers serve`
    "vllm": Provider("http://127.0.0.1:8000/v1"),  # `vllm serve`
}
