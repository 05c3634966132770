"""The way in for everything that rollax reads back: real files of a sane size, and JSON of a known shape.

Nothing here follows a link, waits for a FIFO, or lets an error of a parser through: what is wrong with a file is one
line with its path.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from rollax.errors import CheckpointError, ConfigError, NewerFormatError, RollaxError

FORMAT = 1  # of run folders, checkpoints and exported policies; those from before 0.3.0 have none
MOST_BYTES = 64 * 2**20  # of a file that is held in memory: configurations, summaries, manifests
MOST_TABLE_BYTES = 2 * 2**30  # of a table
MOST_DEPTH = 40  # of what is nested in JSON; a configuration has about six levels
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
Fail = type[RollaxError]


def kind_of(path: Path | str) -> str:
    """What a path itself is, links not followed: "a file", "a folder", "a link", ...; "" where nothing is there."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"not to be seen ({error.strerror})"
    return "a file" if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "something else")


def real_folder(path: Path) -> bool:
    """Whether a folder is there.  Raises CheckpointError for anything else, as for a link to one."""
    kind = kind_of(path)
    if kind not in ("", "a folder"):
        raise CheckpointError(f"{path} is {kind}, where a real folder must be")
    return bool(kind)


@contextmanager
def opened(
    path: Path, *, most: int | None = None, missing: str = "", fail: Fail = CheckpointError, links: bool = False
) -> Generator[BufferedReader]:
    """A regular file of at most so many bytes, to be read; `fail` with the path and the reason for anything else.

    Where the file is missing, ConfigError with that line, if there is one.  With `links`, which is for paths that a
    person has named, a link is followed.
    """
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
        handle = os.open(path, flags)
    except FileNotFoundError as error:
        raise ConfigError(missing) if missing else fail(f"{path} is missing") from error
    except OSError as error:
        reason = "is a link, where a real file must be" if error.errno == errno.ELOOP and not links else ""
        raise fail(f"{path} {reason or f'cannot be read: {error.strerror}'}") from error
    except ValueError as error:  # a path with a null byte
        raise fail(f"{str(path)!r} is no path: {error}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise fail(f"{path} is {KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, where a file must be")
    with os.fdopen(handle, "rb") as file:
        if most is not None and status.st_size > most:
            raise fail(f"{path} has {status.st_size:,} bytes; rollax reads at most {most:,} of such a file")
        try:
            yield file
        except OSError as error:
            raise fail(f"{path} cannot be read: {error.strerror}") from error


def read_bytes(
    path: Path, *, most: int = MOST_BYTES, missing: str = "", fail: Fail = CheckpointError, links: bool = False
) -> bytes:
    """All of a file, as `opened` opens it."""
    with opened(path, most=most, missing=missing, fail=fail, links=links) as file:
        return file.read(most + 1)


def read_text(
    path: Path, *, most: int = MOST_BYTES, missing: str = "", fail: Fail = CheckpointError, links: bool = False
) -> str:
    """The same as text, which must be UTF-8."""
    try:
        return read_bytes(path, most=most, missing=missing, fail=fail, links=links).decode("utf-8")
    except UnicodeDecodeError as error:
        raise fail(f"{path} is no UTF-8 text: byte {error.start} is wrong") from error


def read_json(path: Path, missing: str = "", *, fail: Fail = CheckpointError, links: bool = False) -> Any:
    """The data of a JSON file, as `parsed` parses it."""
    return parsed(read_text(path, missing=missing, fail=fail, links=links), str(path), fail=fail)


def parsed(text: str, where: str, *, fail: Fail = CheckpointError) -> Any:
    """The data of a JSON text.  Names that come twice, and what is nested deeper than anything of ours, are refused."""
    try:
        data = json.loads(text, object_pairs_hook=once)
    except RecursionError as error:
        raise fail(f"{where} is nested too deeply") from error
    except ValueError as error:
        raise fail(f"{where} is no valid JSON: {error}") from error
    level = [data]
    for _ in range(MOST_DEPTH):
        level = [below for one in level for below in inside(one)]
    if level:
        raise fail(f"{where} is nested too deeply")
    return data


def inside(data: Any) -> list[Any]:
    return list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names come once.  Raises ValueError with the one that does not."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:80]!r} comes twice in one object")
        found[name] = value
    return found


def check_shape(data: Any, shape: Any, where: str, *, fail: Fail = CheckpointError) -> None:
    """Raises `fail` unless data is as a shape says.

    A shape is a type or a tuple of types, a list with the shape of all items, or a dictionary with the shapes of its
    values by name; a name that ends with `?` need not be there.  Other names may be there too.
    """
    if problem := misfit(data, shape, ""):
        raise fail(f"{where}: {problem}")


def misfit(data: Any, shape: Any, at: str) -> str:
    """What is wrong with data, in words; nothing where it fits."""
    if isinstance(shape, dict):
        if not isinstance(data, dict):
            return f"{at or 'it'} must be an object"
        for name, inner in shape.items():
            key = name.removesuffix("?")
            if key in data:
                if problem := misfit(data[key], inner, f"{at}.{key}" if at else key):
                    return problem
            elif key == name:
                return f"{at}.{key} is missing" if at else f"{key} is missing"
        return ""
    if isinstance(shape, list):
        if not isinstance(data, list):
            return f"{at or 'it'} must be a list"
        problems = (misfit(item, shape[0], f"{at}[{index}]") for index, item in enumerate(data))
        return next(filter(None, problems), "")
    wanted = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(data, bool) and bool not in wanted:
        return f"{at or 'it'} is {data}, which is of the wrong type"
    return "" if isinstance(data, wanted) else f"{at or 'it'} is {short(data)}, which is of the wrong type"


def check_format(data: Any, where: Path) -> None:
    """Refuses what a newer version has written; CheckpointError for what is no format at all."""
    form = data.get("format", 0) if isinstance(data, dict) else None
    if not isinstance(form, int) or isinstance(form, bool) or form < 0:
        raise CheckpointError(f"{where} is damaged: it has no valid format")
    if form > FORMAT:
        raise NewerFormatError(f"{where} has format {form}, and this version reads up to {FORMAT}; use a newer rollax")


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def sha256_of(path: Path, *, size: int | None = None) -> str:
    """The hash of a real file, which must have that size where one is given; else CheckpointError."""
    with opened(path) as file:
        found = os.fstat(file.fileno()).st_size
        if size is not None and found != size:
            raise CheckpointError(f"{path} is damaged: it has {found:,} bytes instead of {size:,}")
        return hashlib.file_digest(file, "sha256").hexdigest()
