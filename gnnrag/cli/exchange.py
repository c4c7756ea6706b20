"""Write what other tools read, and read what they write.

    gnnrag exchange trec RUN OUT                   run.trec and qrels.trec of a run, for trec_eval, ir-measures, ranx
    gnnrag exchange to-beir DATA OUT [SPLIT]       a benchmark as a BEIR folder
    gnnrag exchange from-beir FOLDER OUT [SPLIT]   a BEIR folder in the layout that all commands read (data.path=OUT)
    gnnrag exchange graphml INDEX FILE             the knowledge graph of an index, for Gephi, Cytoscape, yEd

In Python there are also networkx and PyG's HeteroData (gnnrag.interchange.graph), and a retriever for LangChain
(gnnrag.interchange.langchain).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnnrag.cli.console import refuse_flags
from gnnrag.common.records import recorded_data
from gnnrag.config import EvaluateConfig
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import GnnragError, nearest
from gnnrag.index.index import Index
from gnnrag.interchange.beir import read_beir, write_beir, write_canonical
from gnnrag.interchange.graph import write_graphml
from gnnrag.interchange.trec import write_qrels, write_run
from gnnrag.run.evaluate import load_questions_for
from gnnrag.run.rundir import read_predictions

FORMS = {"trec": "RUN OUT", "to-beir": "DATA OUT [SPLIT]", "from-beir": "FOLDER OUT [SPLIT]", "graphml": "INDEX FILE"}


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    refuse_flags(arguments, [])
    form, *names = arguments or ("",)
    if form not in FORMS:
        raise GnnragError(f"exchange {form}: give a form. {nearest(form, FORMS)} See gnnrag exchange --help.")
    most = 3 if "SPLIT" in FORMS[form] else 2
    if not 2 <= len(names) <= most:
        raise GnnragError(f"usage: gnnrag exchange {form} {FORMS[form]}")
    source, out = Path(names[0]), Path(names[1])
    if form == "trec":
        config = EvaluateConfig(data=recorded_data(source, "give a run that gnnrag evaluate made"))
        write_run(out / "run.trec", read_predictions(source), tag=source.resolve().name.replace(" ", "_"))
        write_qrels(out / "qrels.trec", load_questions_for(config).questions)
    elif form == "graphml":
        write_graphml(Index(source), out)
    elif form == "to-beir":
        split = names[2] if len(names) > 2 else "dev"
        write_beir(load_dataset(source, split), out, split)
    else:
        split = names[2] if len(names) > 2 else "test"
        write_canonical(read_beir(source, split), out, split)
    print(out)
    return 0
