"""The command `gnnrag`: its subcommands, and how an error ends it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import typer

from gnnrag import __version__
from gnnrag.cli import ask, data, evaluate, index, llm, reports, training
from gnnrag.errors import GnnragError, StoppedError


def end(code: int | None) -> None:
    raise typer.Exit(code or 0)


app = typer.Typer(
    name="gnnrag",
    result_callback=end,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Multi-hop question answering over graphs.

    \b
    gnnrag ask "Who ...?" data.path=papers index.path=indexes/mine    index a folder of documents, and ask it
    gnnrag ask index.path=indexes/mine                                a conversation, with follow-ups
    gnnrag evaluate method=bdtr retriever=dense run.name=one          a method on the questions of the sample
    gnnrag evaluate method=single retriever=dense run.name=two        another
    gnnrag compare runs/one runs/two --html runs/page.html            the two, question by question

    Settings are written key=value, after a YAML file with others (gnnrag/config.py); your own parts are named by where
    they are: retriever=mypkg.mine:TitleMatch. --debug shows where an error comes from.
    """,
)
app.add_typer(index.app, name="index")
app.add_typer(llm.app, name="llm")
for command in (
    *(ask.ask, ask.serve, evaluate.evaluate, evaluate.demo, evaluate.cross_validate, evaluate.judge),
    *(reports.compare, reports.reproduce, training.train, training.collect_traces),
    data.exchange,
):
    app.command(command.__name__.replace("_", "-"))(command)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 2 for what was asked for, 1 for what went wrong."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)  # libraries log their own debugging
    logging.basicConfig(format="%(levelname)s: %(message)s", handlers=[handler])
    if any(":" in argument for argument in arguments):
        sys.path.append(os.getcwd())  # modules with parts of one's own
    try:
        app(args=[argument for argument in arguments if argument != "--debug"], prog_name="gnnrag")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except (GnnragError, OSError) as error:
        if "--debug" in arguments:
            raise
        why = str(error)
        if isinstance(error, OSError) and error.filename:
            why = f"{error.filename}: {error.strerror}; give another place, or rights and room there"
        print(f"error: {why}", file=sys.stderr)
        return 2 if isinstance(error, GnnragError) and not isinstance(error, StoppedError) else 1
    return 0


def main(*command: str) -> None:
    """Run the command line of this process, and end it; a script gives its own `command`."""
    sys.exit(run([*command, *sys.argv[1:]]))


if __name__ == "__main__":
    main()
