"""Sweeps: a function called for every item of a grid, on any executor, as a tidy table that survives a kill."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from floatsim._extras import install_command
from floatsim.formats import FloatFormat
from floatsim.formats._validation import as_flag

if TYPE_CHECKING:
    import pandas

__all__ = ["Grid", "SweepTable", "sweep"]

Grid: TypeAlias = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]

_WAITING = 256  # items that are handed to the executor at a time: enough for its workers, little memory


class SweepTable(list[dict[str, Any]]):
    """The rows of a sweep, in the order of the grid: the parameters, the results, and "error" (None: it ran).

    >>> table = SweepTable([{"k": 1, "result": 2.0, "error": None}, {"k": 2, "result": None, "error": "ValueError: k"}])
    >>> table.errors
    [{'k': 2, 'result': None, 'error': 'ValueError: k'}]
    """

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The rows of the items that raised an error."""
        return [row for row in self if row["error"] is not None]

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a pandas DataFrame, one row for each item.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError(f"pandas is not installed: {install_command('pandas')}") from None
        return pandas.DataFrame(list(self))


def sweep(
    function: Callable[..., Any], grid: Grid, *, executor: Any = None, file: str | Path | None = None,
    retry_errors: bool = False, progress: bool | None = None,
) -> SweepTable:  # fmt: skip
    """Call a function for every item of a grid, in other processes or on other machines, and return a table.

    Parameters
    ----------
    function : callable
        Called as function(**item). It returns a dict of results, or one result, which gets the column "result".
    grid : mapping of names to values, or iterable of mappings
        {"k": [64, 128], "format": ["fp16", "bf16"]} is the four combinations. Or the items themselves, such as
        [{"k": 64}, {"k": 128}].
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Where the calls run. Default: a pool of processes of this machine, started by "spawn". A script then needs
        `if __name__ == "__main__":`, and the function must be importable.
    file : path, optional
        A file of JSON lines, one for each finished item. A later call with the same file calls the function only for
        the other items. Parameters must then be JSON types or formats, and results JSON types or NumPy scalars.
    retry_errors : bool
        Whether items of `file` that raised an error are called again.
    progress : bool, optional
        Whether a progress bar is shown. Default: on a terminal.

    Returns
    -------
    SweepTable
        A list of dicts with the same columns for each item: parameters, results and "error". `to_pandas` returns it as
        a DataFrame.

    Raises
    ------
    TypeError
        If the grid has no items of this kind, the function cannot be sent to other processes, or a parameter has no
        JSON form and `file` is given.
    ValueError
        If an item is twice in the grid of a `file`, or `file` belongs to another function or is damaged.
    OSError
        If `file` cannot be written.
    concurrent.futures.BrokenExecutor
        If a worker died. The finished items are in `file`.

    Notes
    -----
    An error of one item does not stop the others. Its row has the type and text of the error in "error".

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import floatsim as fs
    >>> def largest(format, bits):
    ...     return {"max": fs.as_format(format).max / 2**bits}
    >>> with ThreadPoolExecutor() as executor:
    ...     table = sweep(largest, {"format": ["fp16", "fp61"], "bits": [0, 1]}, executor=executor)
    >>> [row["max"] for row in table], table[2]["error"][:37]
    ([65504.0, 32752.0, None, None], "ValueError: unknown format 'fp61'; di")
    """
    if not callable(function):
        raise TypeError(f"function must be callable, not {function!r}")
    items = _items(grid)
    keys = [] if file is None else _keys(items)
    journal = None if file is None else _Journal(Path(file), _name(function))
    known = {} if journal is None else journal.read(as_flag(retry_errors, "retry_errors"))
    results = {i: known[key] for i, key in enumerate(keys) if key in known}
    todo = [i for i in range(len(items)) if i not in results]
    if todo:
        with ExitStack() as stack:
            if journal is not None:
                stack.enter_context(journal)
            used = _executor(executor, function, stack)
            bar = _bar(progress, len(items), len(results), stack)
            for i, outcome in _outcomes(used, function, items, todo):
                results[i] = outcome if journal is None else journal.write(keys[i], outcome)
                bar.update()
    return _table(items, [results[i] for i in range(len(items))])


# -- the items ---------------------------------------------------------------------------------------------------------


def _items(grid: Grid) -> list[dict[str, Any]]:
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str | bytes) or not isinstance(values, Iterable):
                raise TypeError(f"grid: {name} must be a sequence of values, such as [{values!r}], not {values!r}")
        columns = [list(values) for values in grid.values()]
        return [dict(zip(grid, row, strict=True)) for row in itertools.product(*columns)]
    items = list(grid)
    if not all(isinstance(item, Mapping) and all(isinstance(name, str) for name in item) for item in items):
        raise TypeError("grid must be a mapping of names to values, or a sequence of mappings such as [{'k': 64}]")
    return [dict(item) for item in items]


def _parameter(value: Any) -> Any:
    """Return what stands for a parameter in a file: formats by name, and NumPy scalars by value."""
    if isinstance(value, FloatFormat):
        return {"format": repr(value)}
    return _plain(value)


def _plain(value: Any) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is no JSON type")


def _keys(items: Sequence[dict[str, Any]]) -> list[str]:
    """Return the JSON of each item, which finds its line in a file again."""
    try:
        keys = [json.dumps(item, sort_keys=True, default=_parameter) for item in items]
    except (TypeError, ValueError) as error:
        raise TypeError(f"grid: {error}; with file=, parameters are JSON types or formats") from None
    twice = {key for key, group in itertools.groupby(sorted(keys)) if len(list(group)) > 1}
    if twice:
        raise ValueError(f"grid: {min(twice)} is there twice")
    return keys


def _name(function: Callable[..., Any]) -> str:
    inner = function
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    return f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"


# -- the calls ---------------------------------------------------------------------------------------------------------

Outcome: TypeAlias = dict[str, Any]
"""{"results": {...}, "error": None or text}."""


def _call(function: Callable[..., Any], item: dict[str, Any]) -> Outcome:
    """Return the outcome of one item. Runs on the executor."""
    try:
        value = function(**item)
    except Exception as error:
        return _failed(error)
    return {"results": dict(value) if isinstance(value, Mapping) else {"result": value}, "error": None}


def _failed(error: BaseException) -> Outcome:
    return {"results": {}, "error": f"{type(error).__name__}: {error}"}


def _end_with_parent() -> None:
    """End this worker when its parent process is killed. Otherwise it would wait for work forever."""
    import multiprocessing

    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _executor(executor: Any, function: Callable[..., Any], stack: ExitStack) -> Executor:
    if executor is None:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        executor = stack.enter_context(ProcessPoolExecutor(mp_context=context, initializer=_end_with_parent))
        stack.callback(executor.shutdown, wait=True, cancel_futures=True)
    elif hasattr(executor, "get_executor"):  # a client of dask.distributed
        executor = executor.get_executor()
    if not hasattr(executor, "submit"):
        raise TypeError(f"executor must be a concurrent.futures.Executor or a dask client, not {executor!r}")
    if isinstance(executor, ProcessPoolExecutor):
        try:
            pickle.dumps(function)
        except Exception as error:
            raise TypeError(
                f"function cannot be sent to other processes ({error}): define it at the top of a module, or pass "
                "executor=ThreadPoolExecutor()"
            ) from None
    used: Executor = executor
    return used


def _outcomes(
    executor: Executor, function: Callable[..., Any], items: Sequence[dict[str, Any]], todo: Sequence[int]
) -> Iterator[tuple[int, Outcome]]:
    """Yield the index and the outcome of each item, in the order in which they finish."""
    rest = iter(todo)
    running: dict[Future[Outcome], int] = {}
    try:
        while True:
            for i in itertools.islice(rest, _WAITING - len(running)):
                running[executor.submit(_call, function, items[i])] = i
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), _outcome(future)
    finally:
        for future in running:
            future.cancel()


def _outcome(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except (BrokenExecutor, CancelledError):
        raise
    except Exception as error:  # such as a result that cannot be sent back
        return _failed(error)


def _bar(progress: bool | None, total: int, done: int, stack: ExitStack) -> Any:
    from tqdm import tqdm

    disable = None if progress is None else not as_flag(progress, "progress")
    return stack.enter_context(tqdm(total=total, initial=done, disable=disable, unit="item"))


def _table(items: Sequence[dict[str, Any]], outcomes: Sequence[Outcome]) -> SweepTable:
    names = dict.fromkeys(name for outcome in outcomes for name in outcome["results"])
    taken = {*names, "error"} & {name for item in items for name in item}
    if taken:
        raise ValueError(f"function returns {', '.join(sorted(taken))}, which is the name of a parameter, too")
    columns = dict.fromkeys(name for item in items for name in item)
    return SweepTable(
        {
            **{name: item.get(name) for name in columns},
            **{name: outcome["results"].get(name) for name in names},
            "error": outcome["error"],
        }
        for item, outcome in zip(items, outcomes, strict=True)
    )


# -- the file ----------------------------------------------------------------------------------------------------------


class _Journal:
    """The file of a sweep: a line with the name of the function, then one line for each finished item.

    A line is complete if it ends with a line break. The rest of a line that a kill left is cut off before the next one
    is written.
    """

    def __init__(self, path: Path, function: str) -> None:
        self.path, self.function = path, function
        self.end = 0
        self.opened: IO[bytes] | None = None

    def read(self, retry_errors: bool) -> dict[str, Outcome]:
        """Return the outcomes of the complete lines by their keys."""
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        self.end = content.rfind(b"\n") + 1
        found: dict[str, Outcome] = {}
        for number, line in enumerate(content[: self.end].splitlines(), 1):
            try:
                row = json.loads(line)
                if number == 1:
                    self._check(row["function"])
                    continue
                outcome = {"results": dict(row["results"]), "error": row["error"]}
                found[str(row["key"])] = outcome
            except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
                raise ValueError(f"file: line {number} of {self.path} is no line of a sweep; give a new file") from None
        return {key: each for key, each in found.items() if not (retry_errors and each["error"] is not None)}

    def _check(self, function: str) -> None:
        if function != self.function:
            raise ValueError(f"file: {self.path} has results of {function}, not of {self.function}; give a new file")

    def __enter__(self) -> _Journal:
        if self.path.exists():
            with self.path.open("r+b") as file:
                file.truncate(self.end)
        self.opened = self.path.open("ab")
        if self.end == 0:
            self._append({"function": self.function})
        return self

    def __exit__(self, *_: object) -> None:
        if self.opened is not None:
            self.opened.close()

    def _append(self, row: dict[str, Any]) -> dict[str, Any]:
        assert self.opened is not None
        text = json.dumps(row, default=_plain)
        self.opened.write(text.encode() + b"\n")
        self.opened.flush()
        written: dict[str, Any] = json.loads(text)
        return written

    def write(self, key: str, outcome: Outcome) -> Outcome:
        """Append an outcome, and return it as a later call reads it: with lists for tuples, for example."""
        try:
            row = self._append({"key": key, **outcome})
        except (TypeError, ValueError) as error:
            row = self._append({"key": key, **_failed(error)})
        return {"results": row["results"], "error": row["error"]}
