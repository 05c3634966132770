"""Saving and restoring trees of arrays.  Damaged files are noticed; loading never runs code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from rollax.errors import CheckpointError
from rollax.programs.loop import leaf_name
from rollax.runs.files import flush
from rollax.runs.reader import (
    FORMAT,
    check_format,
    check_shape,
    kind_of,
    parsed,
    read_bytes,
    read_json,
    real_folder,
    sha256_of,
)
from rollax.tracing import fetch

ARRAYS, META, MANIFEST, SEAL = "arrays.safetensors", "meta.json", "manifest.json", "manifest.sha256"
PIECE = 2**24  # bytes that are hashed and written at once
DTYPES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip
META_SHAPE = {
    "step": int,
    "rollax?": str,
    "config?": dict,
    "times?": dict.fromkeys(("wall_seconds", "compile_seconds", "train_seconds"), (int, float)),
    "tables?": dict,
}


def save(folder: Path, tree: Any, meta: dict[str, Any]) -> None:
    """Writes a tree and what is said of it."""
    write(folder, flatten(tree), meta)


def write(folder: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Writes arrays and what is said of them, aside at first, so that `folder` appears complete or not at all."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    (aside / META).write_text(json.dumps(meta, indent=1))
    hashes = {ARRAYS: write_arrays(aside / ARRAYS, arrays), META: sha256_of(aside / META)}
    manifest: dict[str, Any] = {"format": FORMAT} | {
        name: {"sha256": sha256, "bytes": (aside / name).stat().st_size} for name, sha256 in hashes.items()
    }
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1))
    (aside / SEAL).write_text(sha256_of(aside / MANIFEST))
    for path in (*aside.iterdir(), aside):
        flush(path)
    if folder.exists():
        shutil.rmtree(folder)
    aside.rename(folder)
    flush(folder.parent)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> str:
    """Writes a safetensors file without a copy of anything, and returns its SHA-256, taken on the way."""
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))  # so that all are aligned
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    total = hashlib.sha256()
    with path.open("wb") as file:
        for piece in (len(text).to_bytes(8, "little"), text, *(part for _, array in ordered for part in parts(array))):
            total.update(piece)
            file.write(piece)
    return total.hexdigest()


def parts(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of a contiguous array, piece by piece."""
    flat = array.reshape(-1).view(np.uint8).data
    return (flat[start : start + PIECE] for start in range(0, len(flat), PIECE))


def verify(folder: Path) -> dict[str, Any]:
    """What was said of a checkpoint, once every file in it is as it was written; else CheckpointError."""
    if not real_folder(folder):
        raise CheckpointError(f"{folder} is missing")
    manifest = read_bytes(folder / MANIFEST)
    if read_bytes(folder / SEAL) != hashlib.sha256(manifest).hexdigest().encode():
        raise CheckpointError(f"{folder}: {MANIFEST} or {SEAL} is damaged")
    listed = parsed(manifest.decode("utf-8", "replace"), str(folder / MANIFEST))
    check_format(listed, folder)
    listed.pop("format", None)
    if set(listed) != {ARRAYS, META}:
        raise CheckpointError(f"{folder / MANIFEST} must list {ARRAYS} and {META}, and nothing else")
    check_shape(listed, {ARRAYS: {"sha256": str, "bytes": int}, META: {"sha256": str, "bytes": int}}, f"{folder}")
    for name, expected in listed.items():
        if sha256_of(folder / name, size=expected["bytes"]) != expected["sha256"]:
            raise CheckpointError(f"{folder}: {name} is damaged")
    return read_meta(folder)


def read_meta(folder: Path) -> dict[str, Any]:
    """What is said of a checkpoint, in the shape that it must have, and of the step that its folder is named after."""
    meta = read_json(folder / META)
    check_shape(meta, META_SHAPE, str(folder / META))
    if folder.name != str(meta["step"]):
        raise CheckpointError(f"{folder} is the checkpoint of step {meta['step']} under another name")
    return meta


def remove(folder: Path) -> None:
    """Deletes a checkpoint, or what a kill has left of one: the files that `write` writes, and then the empty folder.

    A link is left alone, and so is whatever else somebody has put there.
    """
    if kind_of(folder) != "a folder":
        return
    for name in (SEAL, MANIFEST, META, ARRAYS):
        if kind_of(folder / name) == "a file":
            (folder / name).unlink()
    with suppress(OSError):
        folder.rmdir()


def stored_names(folder: Path) -> set[str]:
    """The paths of all arrays of a checkpoint; none of them is read."""
    with opened_arrays(folder) as file:
        return set(file.keys())


@contextmanager
def opened_arrays(folder: Path) -> Generator[Any]:
    """The arrays of a verified checkpoint, to be read.  CheckpointError where they cannot be."""
    try:
        with safe_open(folder / ARRAYS, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder}: {ARRAYS} cannot be read: {error}") from error


def names_of(tree: Any) -> set[str]:
    """The paths that a tree's arrays have in a checkpoint."""
    return {leaf_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)}


def restore(folder: Path, like: Any, part: str = "") -> Any:
    """The tree of a verified checkpoint, or the part of it below a path.

    It must have the paths, shapes and dtypes of `like`; CheckpointError names the first that differs.
    """
    prefix = f"{part}/" if part else ""
    with opened_arrays(folder) as file:
        names = [name for name in file.keys() if name == part or name.startswith(prefix)]
        stored = {name.removeprefix(part).removeprefix("/"): file.get_tensor(name) for name in names}
    return unflatten(stored, like, f"{folder}/{part}".rstrip("/"))


def flatten(tree: Any, *, keep: bool = True) -> dict[str, np.ndarray]:
    """Arrays by path.  Keys of random numbers are stored as their words.

    A process that does not keep them takes part, where arrays are spread over several, and returns nothing.
    """
    plain = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if is_key(leaf) else leaf, tree)
    named = ((path, fetch(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(plain))
    return {leaf_name(path): np.asarray(array, order="C") for path, array in named if keep}


def unflatten(stored: dict[str, np.ndarray], like: Any, where: str) -> Any:
    if strangers := set(stored) - names_of(like):
        raise CheckpointError(f"{where}: {sorted(strangers)[0]} belongs to another experiment")

    def fetch(path: Any, leaf: Any) -> Any:
        name = leaf_name(path)
        if name not in stored:
            raise CheckpointError(f"{where}: {name} is missing")
        plain = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
        found = stored[name]
        if found.shape != plain.shape or found.dtype != plain.dtype:
            raise CheckpointError(
                f"{where}: {name} is {found.dtype}{list(found.shape)}, but this experiment needs "
                f"{plain.dtype}{list(plain.shape)}"
            )
        # A copy of its own: the programs overwrite their arguments in place.
        array = jax.numpy.array(found, copy=True)
        return jax.random.wrap_key_data(array) if is_key(leaf) else array

    return jax.tree_util.tree_map_with_path(fetch, like)


def params_sha256(params: Any) -> str:
    """A fingerprint of weights: leaves in order of their path, each as path, dtype, shape and bytes."""
    total = hashlib.sha256()
    for name, leaf in sorted(flatten(params).items()):
        little = leaf.astype(leaf.dtype.newbyteorder("<"))
        total.update(f"{name}\n{leaf.dtype.name}\n{list(leaf.shape)}\n".encode())
        total.update(little.tobytes(order="C"))
    return total.hexdigest()


def is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
