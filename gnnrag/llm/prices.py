"""What models cost: the one place for prices. A config's own `price_in` and `price_out` go before them."""

from __future__ import annotations

import re
from typing import Any

from gnnrag.credentials import host

# US dollars per million tokens of prompt and reply, undiscounted, as OpenAI listed them in mid 2025. Prices change:
# check them before a large run. A model that is not here costs nothing until llm.price_in and llm.price_out say more.
PRICES = {
    "api.openai.com": {
        "gpt-3.5-turbo": (0.50, 1.50),
        "gpt-4o": (2.50, 10.00),
        "gpt-4o-mini": (0.15, 0.60),
        "gpt-4.1": (2.00, 8.00),
        "gpt-4.1-mini": (0.40, 1.60),
        "gpt-4.1-nano": (0.10, 0.40),
    }
}
_DATED = re.compile(r"-\d{4}-\d\d-\d\d$")  # a snapshot costs what its model costs


def prices_of(settings: Any) -> tuple[float, float]:
    """Return the prices of a backend's model, per million tokens of prompt and of reply; zeros where none is known."""
    url = "" if getattr(settings, "server_file", None) else getattr(settings, "base_url", "")
    known = PRICES.get(host(url), {})
    listed = known.get(_DATED.sub("", getattr(settings, "model", "")), (0.0, 0.0))
    own = (getattr(settings, "price_in", None), getattr(settings, "price_out", None))
    first, second = (price if said is None else said for said, price in zip(own, listed, strict=True))
    return first, second
