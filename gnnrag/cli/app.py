"""The command `gnnrag`: what each subcommand is for, and which module runs it. The modules are loaded when called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import typer

from gnnrag import __version__
from gnnrag.cli.running import run_main
from gnnrag.common.yaml_config import SHIPPED
from gnnrag.errors import GnnragError, nearest

HELP = None  # of the whole, or of a command: `main` tells them apart

START = """Multi-hop question answering over graphs.

    gnnrag ask "Who ...?" data.path=papers index.path=indexes/mine    index a folder of documents, and ask it
    gnnrag ask index.path=indexes/mine                                ask on: a conversation, with follow-ups
    gnnrag evaluate method=bdtr retriever=dense run.name=one          a method on the questions of the sample
    gnnrag evaluate method=single retriever=dense run.name=two        another
    gnnrag compare runs/one runs/two --html runs/page.html            the two, question by question

Settings are written key=value; every command tells its own with --help. Your own parts are named by where they are:
retriever=mypkg.mine:TitleMatch. The same command again continues what was interrupted.
"""
ASKING, RESEARCH, TRAINING, DATA = "Ask your documents", "Compare methods", "Train parts", "Data"
COMMANDS = {
    "ask": (ASKING, "Ask a question of an index; without one, a conversation."),
    "index": (ASKING, "Build an index, add and remove documents, look at it."),
    "serve": (ASKING, "Serve indexes: a page, OpenAI's API, REST, MCP."),
    "evaluate": (RESEARCH, "Run a method on a benchmark and score it."),
    "compare": (RESEARCH, "Compare runs: table, significance, page."),
    "table": (RESEARCH, "Several methods and retrievers in one table."),
    "reproduce": (RESEARCH, "Reproduce a table or figure of a paper."),
    "judge": (RESEARCH, "Let a language model judge answers."),
    "audit": (RESEARCH, "Which questions flat retrieval fails, and what each route costs."),
    "cross-validate": (RESEARCH, "Ask each question with parts that did not train on it."),
    "train": (TRAINING, "Train a part: gnn, verifier, thoughts, reader or encoder."),
    "collect-traces": (TRAINING, "Record a teacher's decisions as training rows."),
    "reader-rows": (TRAINING, "Write training rows for a reader."),
    "sub-question-rows": (TRAINING, "Write sub-questions as training rows."),
    "compose-questions": (TRAINING, "Compose multi-hop questions of single ones."),
    "match-thoughts": (TRAINING, "Compare thoughts with gold decompositions."),
    "fetch": (DATA, "List, get and check public benchmarks."),
    "hub": (TRAINING, "Push trained parts and indexes to a hub, pull them."),
    "exchange": (DATA, "TREC, BEIR and GraphML files, in and out."),
    "smollm": (DATA, "Get a small language model that any machine can run."),
    "demo": (DATA, "Index the sample, compare three methods on five retrievers."),
}
# What they are run with where nothing is given; the scripts in inference/ say the same.
_HELPED = (
    *("audit", "compare", "compose-questions", "exchange", "fetch", "hub"),
    *("match-thoughts", "reader-rows", "serve", "sub-question-rows"),
)
_INSTEAD = dict.fromkeys(_HELPED, ("--help",)) | {"smollm": ("models/smollm2",)}
_COMPLETES = "_GNNRAG_COMPLETE"
_VALUES = {"method": "METHODS", "retriever": "RETRIEVERS", "llm": "BACKENDS"}

app = typer.Typer(
    name="gnnrag", help=START, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
)


def complete(incomplete: str) -> list[str]:
    """Return what a word on the command line may go on as: a part's name, a form of the roles, a config."""
    from gnnrag import registry

    key, equals, value = incomplete.partition("=")
    if equals and key in _VALUES:
        return [f"{key}={name}" for name in getattr(registry, _VALUES[key]) if name.startswith(value)]
    if equals and (key == "roles" or key.startswith("roles.")):
        table = registry.ROLES.get(key.partition(".")[2], registry.ROLES["verifier"])
        return [f"{key}={name}" for name in (*table, "auto") if name.startswith(value)]
    if equals:
        return []
    configs = [path.relative_to(SHIPPED).as_posix() for path in (SHIPPED / "configs").rglob("*.yaml")]
    there = [path.as_posix() for path in Path().glob(f"{incomplete}*")] if not incomplete.startswith("/") else []
    keys = [f"{name}=" for name in (*_VALUES, "roles", "data.path", "index.path", "run.name")]
    return sorted({word for word in (*configs, *there, *keys) if word.startswith(incomplete)})


def _register(name: str, short: str) -> None:
    def command(arguments: list[str] = typer.Argument(None, autocompletion=complete)) -> int:  # noqa: B008
        module = import_module(f"gnnrag.cli.{name.replace('-', '_')}")
        return run_main(module.main, arguments or _INSTEAD.get(name, ()), getattr(module, "HELP", module.__doc__))

    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(name, help=short, context_settings=settings, add_help_option=False)(command)


for _name, (_, _short) in COMMANDS.items():
    _register(_name, _short)


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand; returns the exit code."""
    first = arguments[0] if arguments else "--help"
    if _COMPLETES in os.environ:  # a shell asks what a word may go on as
        first = "--show-completion"
    if first in ("-h", "--help"):
        print(help_text())
        return 0
    if first == "--version":
        print(f"gnnrag {__version__}")
        return 0
    if first not in COMMANDS and first not in ("--install-completion", "--show-completion"):
        raise GnnragError(f"gnnrag {first}: there is no such command. {nearest(first, COMMANDS)} See gnnrag --help.")
    return int(typer.main.get_command(app).main(list(arguments), "gnnrag", standalone_mode=False) or 0)


def help_text() -> str:
    """Return what `gnnrag --help` prints: how to begin, then the commands by what they are for."""
    lines = [START]
    for panel in dict.fromkeys(panel for panel, _ in COMMANDS.values()):
        lines += [panel, *(f"  {name:18} {short}" for name, (of, short) in COMMANDS.items() if of == panel), ""]
    return "\n".join([*lines, "Completion of commands, parts and settings: gnnrag --install-completion"])
