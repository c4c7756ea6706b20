"""The storage of an index: Lance tables of passages and of values computed from single texts; arrays of artefacts."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_type_hints

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments
from pyarrow import feather

from gnnrag.arrays import Rows
from gnnrag.datasets.metadata import with_one_type
from gnnrag.errors import ArtefactError
from gnnrag.io import cache_folder, well_formed, write_folder
from gnnrag.text.normalise import with_blanks
from gnnrag.types import Passage

PASSAGES = "passages.lance"
_OWN = ("id", "title", "text", "place")  # columns of every passage; those of metadata follow
_KEY, CONTENT = "_key", "_content"  # no field of a document begins so
_STATE = b"gnnrag"  # the key of settings and source in the schema of the passages
# Lucene's stop-words of English, as the papers' BM25 has them; Lance's own list is much longer.
_ENGLISH = """a an and are as at be but by for if in into is it no not of on or such that the their then there these
they this to was will with"""
_MANY_FRAGMENTS = 64  # files of a table that are put together
_MANY_SLICES = 1000  # of a column, above which values are taken one by one
_COMMIT_S = 2.0  # a killed build loses the values of so many seconds
_BLOCK = 10_000  # passages whose strings are in memory twice while a table is made
_CLEANUP: Any = {"auto_cleanup_options": {"interval": 64, "older_than_seconds": 7 * 24 * 3600}}


def text_key(title: str, text: str) -> str:
    """Return the key under which tables keep what is computed of a title and a text, 32 hex digits."""
    return hashlib.sha256(f"{title}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


# ------------------------------------------------------------------------------------------------------------ passages
def passage_rows(table: pa.Table) -> Rows[Passage]:
    names = _metadata_names(table.schema)

    def make(id_: str, title: str, text: str, place: str, *metadata: Any) -> Passage:
        fields = zip(names, metadata, strict=True)
        return Passage(id_, title, text, place, {name: value for name, value in fields if value is not None})

    return Rows([table[name] for name in (*_OWN, *names)], make)


class PassageTable:
    """One version of the passages of an index, with the settings and the source recorded for it.

    The rows are in index order. `dataset` gives BM25 and filters; its row addresses ascend with the positions.
    """

    def __init__(self, uri: str, version: int | None = None) -> None:
        try:
            self.dataset = lance.dataset(uri, version=version)
        except (ValueError, OSError) as error:
            root, problem = uri.rpartition("/")[0], str(error).partition("\n")[0][:300]
            if "not found" in str(error) and version is None:
                problem = f"make one: gnnrag index build data.path=FOLDER index.path={root}"
            raise ArtefactError(f"{root} is no index; {problem}") from error
        self.state: dict[str, Any] = json.loads((self.dataset.schema.metadata or {}).get(_STATE, b"{}"))
        self.metadata_names = _metadata_names(self.dataset.schema)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that conditions may use."""
        return [*_OWN, *self.metadata_names]

    @cached_property
    def rows(self) -> pa.Table:
        """All columns of all passages but what BM25 reads; with `_key`, see `text_key`."""
        columns = [*_OWN, _KEY, *self.metadata_names]
        return self.dataset.to_table(columns=columns, batch_size=1 << 20).combine_chunks()  # for `take`

    @property
    def keys(self) -> pa.ChunkedArray:
        """The key of each passage's title and text."""
        return self.rows[_KEY]

    def holds(self, passages: Sequence[Passage]) -> bool:
        """Tell whether these are the passages, with the same metadata; they are as loaders return them."""
        names = self.metadata_names
        if len(passages) != len(self.rows) or {name for p in passages for name in p.metadata} != set(names):
            return False
        is_same = all(self.rows[name].to_pylist() == [getattr(p, name) for p in passages] for name in _OWN)
        return is_same and all(self.rows[n].to_pylist() == [p.metadata.get(n) for p in passages] for n in names)

    def take(self, positions: Sequence[int]) -> tuple[Passage, ...]:
        return tuple(passage_rows(self.rows.take(pa.array(positions, pa.int64()))))

    @cached_property
    def row_ids(self) -> np.ndarray:
        """Row addresses, ascending. Shape (num_passages,), uint64."""
        return self.dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_numpy()

    @cached_property
    def key(self) -> str:
        """A hash of all passages in their order, without metadata, 64 hex digits."""
        rows = self.dataset.to_table(columns=["id", "place", _KEY])  # the texts are most of `rows`
        columns = ("\0".join(rows[name].to_pylist()) for name in ("id", "place", _KEY))
        return hashlib.sha256("\1".join(columns).encode()).hexdigest()

    def matching(self, condition: str) -> np.ndarray:
        """Tell which passages fulfil an SQL condition over the columns. Shape (num_passages,), bool."""
        rows = self.dataset.to_table(columns=[], filter=condition, with_row_id=True)["_rowid"].to_numpy()
        mask = np.zeros(len(self.row_ids), dtype=bool)
        mask[np.searchsorted(self.row_ids, rows)] = True
        return mask

    def record(self, state: Mapping[str, Any]) -> None:
        metadata = {**(self.dataset.schema.metadata or {}), _STATE: json.dumps(state).encode()}
        self.dataset.update_schema_metadata({k.decode(): v.decode() for k, v in metadata.items()}, replace=True)
        self.state = dict(state)

    def has_bm25(self, language: str) -> bool:
        """Tell whether there is such a BM25 index; it may be of earlier passages, and the rest is searched without."""
        return _bm25_name(language) in {index.name for index in self.dataset.describe_indices()}

    def with_bm25(self, language: str, is_anew: bool = False) -> PassageTable:
        """Return these passages with a BM25 index on their contents, which `is_anew` makes of all of them again.

        Raises ArtefactError where the passages have changed since they were opened.
        """
        newest = PassageTable(self.dataset.uri)
        if newest.key != self.key:
            raise ArtefactError(f"{self.dataset.uri} has changed since it was opened; open it again")
        if newest.has_bm25(language) and not is_anew:
            return newest
        name = _bm25_name(language)
        for index in newest.dataset.describe_indices():
            if index.name != name:
                newest.dataset.drop_index(index.name)
        stop_words: dict[str, Any] = {"custom_stop_words": _ENGLISH.split()} if language == "English" else {}
        # An index that is only optimised still counts the passages that are gone.
        newest.dataset.create_scalar_index(
            CONTENT, "INVERTED", name=name, replace=True, language=language,
            stem=True, remove_stop_words=True, with_position=False, **stop_words,
        )  # fmt: skip
        return PassageTable(self.dataset.uri)

    def edit(self, gone: Collection[str], new: Sequence[Passage]) -> PassageTable:
        """Remove passages by id and add others at the end, in one commit; returns the new version."""
        dataset, uri = self.dataset, self.dataset.uri
        schema = dataset.schema.remove_metadata()
        added = _as_table(new)
        with suppress(pa.ArrowTypeError):
            added = pa.concat_tables([schema.empty_table(), added], promote_options="permissive")
        if added.schema != schema:  # a field that there was not, or of another type
            kept = [p for p in passage_rows(self.rows) if p.id not in gone]
            return write_passages(uri, [*kept, *new], self.state)
        quoted = (id_.replace("'", "''") for id_ in gone)
        condition = "id IN ('" + "', '".join(quoted) + "')"
        updated, removed = [], []
        for fragment in dataset.get_fragments() if gone else ():
            after = fragment.delete(condition)
            if after is None:
                removed.append(fragment.fragment_id)
            elif after != fragment.metadata:
                updated.append(after)
        written = write_fragments(added, uri, schema=dataset.schema) if new else []
        operation = LanceOperation.Update(removed, updated, written, [])
        edited = lance.LanceDataset.commit(uri, operation, read_version=dataset.version)
        if len(edited.get_fragments()) > _MANY_FRAGMENTS:
            edited.optimize.compact_files()
        return PassageTable(uri)


def _bm25_name(language: str) -> str:
    return f"bm25-{language}-simple-2".lower()  # of these stop-words


def write_passages(uri: str, passages: Sequence[Passage], state: Mapping[str, Any]) -> PassageTable:
    table = _as_table(passages).replace_schema_metadata({_STATE: json.dumps(state).encode()})
    lance.write_dataset(table, uri, mode="overwrite", **_CLEANUP)
    return PassageTable(uri)


def _as_table(passages: Sequence[Passage]) -> pa.Table:
    passages = with_one_type(passages)
    blocks = (passages[start : start + _BLOCK] for start in range(0, max(1, len(passages)), _BLOCK))
    return pa.concat_tables(map(_as_block, blocks), promote_options="default")


def _as_block(passages: Sequence[Passage]) -> pa.Table:
    columns: dict[str, Any] = {name: [well_formed(getattr(p, name)) for p in passages] for name in _OWN}
    columns[_KEY] = [text_key(p.title, p.text) for p in passages]
    columns[CONTENT] = [with_blanks(well_formed(p.content)) for p in passages]
    table = pa.table(columns, schema=pa.schema([(name, pa.large_string()) for name in columns]))
    for name in dict.fromkeys(name for p in passages for name in p.metadata):
        values = [p.metadata.get(name) for p in passages]
        table = table.append_column(name, pa.array([well_formed(v) if isinstance(v, str) else v for v in values]))
    return table


def _metadata_names(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name not in (*_OWN, _KEY, CONTENT)]


@contextmanager
def undone_on_failure(uri: str) -> Iterator[None]:
    """If the `with` block fails, restore the version that the table had before it."""
    before = latest_version(uri)
    try:
        yield
    except BaseException:
        after = latest_version(uri)
        if before is not None and after != before:
            lance.dataset(uri, version=before).restore()
        elif before is None and after is not None:
            lance.LanceDataset.drop(uri)
        raise


def latest_version(uri: str) -> int | None:
    """Return the number of the newest version of a table, None where there is none."""
    dataset = _newest(uri)
    return None if dataset is None else dataset.version


def _newest(uri: str) -> Any:
    """Return a table in its newest version, None where there is none."""
    try:
        return lance.dataset(uri)
    except ValueError as error:
        if "not found" in str(error):
            return None
        raise


# -------------------------------------------------------------------------------------------------------------- values
class ValueTable:
    """A growing table of values by the key of the text that each was computed from: the cache of builds.

    `kind` is the Arrow type of a value; None: that of the values in it. Rows are committed every two seconds and by
    `flush`.
    """

    def __init__(self, uri: str, kind: pa.DataType | None = None) -> None:
        self.uri, self.kind = uri, kind
        self.dataset = _newest(uri)
        self._waiting: list[pa.Table] = []
        self._fragments: list[FragmentMetadata] = []
        self._committed = time.monotonic()

    @cached_property
    def keys(self) -> pa.ChunkedArray:
        if self.dataset is None:
            return pa.chunked_array([], pa.string())
        return self.dataset.to_table(columns=["key"])["key"]

    @property
    def dim(self) -> int:
        return self.dataset.schema.field("value").type.list_size  # type: ignore[union-attr]

    def missing(self, keys: Sequence[str]) -> list[int]:
        """Return the positions of keys that have no value; of equal keys the first."""
        is_absent = pc.is_null(pc.index_in(pa.array(keys, pa.string()), self.keys))
        first: dict[str, int] = {}
        for i in np.flatnonzero(is_absent.to_numpy(zero_copy_only=False)).tolist():
            first.setdefault(keys[i], i)
        return list(first.values())

    def add(self, keys: Sequence[str], values: Any) -> None:
        """Add values, an array (n, dim) or a sequence; None in a sequence is a value that could not be computed."""
        self._waiting.append(_value_rows(keys, values, self.kind))
        if time.monotonic() - self._committed > _COMMIT_S:
            self.flush()

    def add_fragments(self, fragments: Sequence[str], kind: pa.DataType) -> None:
        """Add values that `write_values` wrote."""
        self._fragments += map(FragmentMetadata.from_json, fragments)
        self.kind = kind
        if time.monotonic() - self._committed > _COMMIT_S:
            self.flush()

    def flush(self) -> None:
        """Commit what was added."""
        self._committed = time.monotonic()
        if not (self._fragments or self._waiting):
            return
        if self.dataset is None:
            empty = pa.schema(
                [("key", pa.string()), ("value", self.kind or self._waiting[0].schema.field("value").type)]
            )
            with suppress(OSError):  # another driver has just made it
                lance.write_dataset(empty.empty_table(), self.uri, mode="create", **_CLEANUP)
            self.dataset = lance.dataset(self.uri)
        if self._waiting:
            self.dataset = lance.write_dataset(pa.concat_tables(self._waiting), self.dataset, mode="append")
        if self._fragments:
            operation, version = LanceOperation.Append(self._fragments), self.dataset.version
            self.dataset = lance.LanceDataset.commit(self.uri, operation, read_version=version)
        self._waiting, self._fragments = [], []
        self.__dict__.pop("keys", None)

    def close(self) -> None:
        """Commit what was added, and put many small files together."""
        self.flush()
        if self.dataset and len(self.dataset.get_fragments()) > _MANY_FRAGMENTS:
            self.dataset.optimize.compact_files()
            self.dataset = lance.dataset(self.uri)

    def take(self, keys: Sequence[str] | pa.ChunkedArray, part: str = "value") -> pa.ChunkedArray:
        """Return the value of each key, or a part of it such as `value.names`; null where there is none."""
        if self.dataset is None:
            return pa.chunked_array([pa.nulls(len(keys), self.kind or pa.null())])
        table = self.dataset.to_table(columns=["key", part])
        rows = pc.index_in(_keys_of(keys), table["key"])
        if rows.null_count or not len(rows):
            return table[part].take(rows)
        # Most values lie in the order of their keys, and slices cost much less than nested values one by one.
        places = rows.to_numpy()
        starts = np.flatnonzero(np.diff(places, prepend=places[0]) != 1)
        if len(starts) > _MANY_SLICES:
            return table[part].take(rows)
        lengths = np.diff(starts, append=len(places))
        slices = (table[part].slice(*run) for run in zip(places[starts].tolist(), lengths.tolist(), strict=True))
        return pa.chunked_array([chunk for run in slices for chunk in run.chunks], table[part].type)

    def vectors(self, keys: Sequence[str] | pa.ChunkedArray) -> np.ndarray:
        """Return the vector of each key, (len(keys), dim); ArtefactError: one is gone."""
        table = self.dataset.to_table(batch_size=1 << 20)  # type: ignore[union-attr]
        rows = without_nulls(pc.index_in(_keys_of(keys), table["key"])).to_numpy()
        vectors = _one_chunk(table["value"]).flatten().to_numpy().reshape(len(table), self.dim)
        return vectors if np.array_equal(rows, np.arange(len(table))) else vectors[rows]  # Arrow's own `take` is slow

    def keep(self, keys: Sequence[str]) -> None:
        """Delete the values of all other keys."""
        if self.dataset is not None:
            table = self.dataset.to_table()
            kept = table.filter(pc.is_in(table["key"], pa.array(keys, pa.string())))
            self.dataset = lance.write_dataset(kept, self.uri, mode="overwrite", **_CLEANUP)
            self.__dict__.pop("keys", None)


def write_values(uri: str, keys: Sequence[str], values: Any, kind: pa.DataType | None) -> tuple[list[str], pa.DataType]:
    """Write values as fragments that a driver adds to the table; returns them as JSON, with the type of a value."""
    rows = _value_rows(keys, values, kind)
    fragments = write_fragments(rows, uri) if len(rows) else []
    return [json.dumps(fragment.to_json()) for fragment in fragments], rows.schema.field("value").type


def _value_rows(keys: Sequence[str], values: Any, kind: pa.DataType | None) -> pa.Table:
    if isinstance(values, np.ndarray):
        column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    else:
        column = pa.array(values, kind)
    table = pa.table({"key": pa.array(keys, pa.string()), "value": column})
    return table.filter(pc.is_valid(table["value"]))


def _keys_of(keys: Sequence[str] | pa.ChunkedArray) -> pa.Array:
    return _one_chunk(keys.cast(pa.string())) if isinstance(keys, pa.ChunkedArray) else pa.array(keys, pa.string())


def without_nulls(column: Any) -> Any:
    """Return the column, unless it has nulls: ArtefactError, as values were deleted after the index was opened."""
    if column.null_count:
        raise ArtefactError("values of this version of the index were deleted (gnnrag index gc); open it again")
    return column


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


# -------------------------------------------------------------------------------------------------- arrays of artefacts
def put_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False), "utf-8", "surrogatepass")


def save_arrays(path: Path, value: Any) -> None:
    """Write an array, `Rows` of strings, JSON data, or a dataclass of such and of dataclasses, a file for each part.

    `path` is without ending. Fields whose names begin with `_` are left out.
    """
    if isinstance(value, np.ndarray):
        np.save(f"{path}.npy", value)
    elif isinstance(value, Rows):
        feather.write_feather(pa.table({"text": value.columns[0]}), f"{path}.arrow", compression="uncompressed")
    elif is_dataclass(value):
        for field in fields(value):
            if not field.name.startswith("_"):
                save_arrays(path.with_name(f"{path.name}.{field.name}"), getattr(value, field.name))
    else:
        put_json(Path(f"{path}.json"), value)


def load_arrays(path: Path, kind: Any) -> Any:
    """Return what `save_arrays` wrote: a `kind`, its tuples as lists, matrices of float16 as float32.

    Matrices of floating-point numbers and strings are mapped into memory.
    """
    if (file := Path(f"{path}.npy")).is_file():
        rows = np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)
        is_matrix = rows.ndim == 2 and rows.dtype.kind == "f"
        return rows if is_matrix and rows.dtype != np.float16 else rows.astype(np.float32 if is_matrix else rows.dtype)
    if (file := Path(f"{path}.arrow")).is_file():
        return Rows([feather.read_table(file, memory_map=True).column(0)])
    if (file := Path(f"{path}.json")).is_file():
        return json.loads(file.read_text("utf-8", "surrogatepass"))
    kind = next((option for option in (kind, *get_args(kind)) if is_dataclass(option)), None)  # of `Kind | None`
    names = [field.name for field in fields(kind) if not field.name.startswith("_")]
    hints = get_type_hints(kind)
    return kind(**{name: load_arrays(path.with_name(f"{path.name}.{name}"), hints[name]) for name in names})


# -------------------------------------------------------------------------------------------------------- object stores
def is_remote(root: Path | str) -> bool:
    """Tell whether an index is in an object store; credentials come from variables such as AWS_ACCESS_KEY_ID."""
    return "://" in str(root)


def place_of(root: Path | str) -> Path | str:
    """Return a folder as a path, an address as it is."""
    return root if is_remote(root) else Path(root)


def local_folder(root: Path | str) -> Path:
    """Return the folder of an index's artefacts: its own, or of a remote one a folder in `GNNRAG_CACHE`."""
    if not is_remote(root):
        return Path(root)
    return cache_folder() / "indexes" / hashlib.sha256(str(root).encode()).hexdigest()[:16]


def _store(place: Path | str) -> tuple[Any, str]:
    from pyarrow import fs

    return fs.FileSystem.from_uri(place if is_remote(place) else str(Path(place).absolute()))  # type: ignore[no-any-return]


def names_in(place: Path | str) -> set[str]:
    """Return the names of the artefacts and tables of an index, where it lies."""
    from pyarrow import fs

    store, path = _store(place)
    return {Path(entry.path).name for entry in store.get_file_info(fs.FileSelector(path, allow_not_found=True))}


def delete(place: Path | str, name: str) -> None:
    """Delete an artefact or a table, with a copy of it that is kept here."""
    shutil.rmtree(local_folder(place) / name, ignore_errors=True)
    if is_remote(place):
        store, path = _store(place)
        store.delete_dir(f"{path}/{name}")


def push(folder: Path, uri: str) -> None:
    """Copy an artefact to the store; its record comes last, as it says that the rest is there."""
    from pyarrow import fs

    store, path = _store(uri)
    for file in sorted(folder.rglob("*"), key=lambda file: file.name == "record.json"):
        if file.is_file():
            fs.copy_files(str(file), f"{path}/{file.relative_to(folder).as_posix()}", fs.LocalFileSystem(), store)


def pull(uri: str, folder: Path) -> bool:
    """Copy an artefact from the store; False where it is not there as a whole."""
    from pyarrow import fs

    store, path = _store(uri)
    if store.get_file_info(f"{path}/record.json").type != fs.FileType.File:
        return False
    write_folder(folder, lambda new: fs.copy_files(path, str(new), store, fs.LocalFileSystem()))
    return True
