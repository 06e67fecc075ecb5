"""The kernels that libraries on a GPU launched, by the shapes that were seen: a table of recordings.

The table only names the kernels of a call. What a kernel computes follows from its name and grid, by the rules of
`floatsim.accumulation.gpu_libraries`. A shape that was not seen has no row: which kernel a library chooses is not
described.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floatsim import datasets
from floatsim.accumulation.gpu_libraries import FUNCTIONS, is_auxiliary, known_device, release
from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.formats._validation import as_index, name_hint

__all__ = ["SETTINGS", "Launches", "default_result", "recorded_kernels"]

SETTINGS = {
    "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
    "allow_fp16_accumulation": "torch.backends.cuda.matmul.allow_fp16_accumulation = True",
    "cublaslt": 'torch.backends.cuda.preferred_blas_library("cublaslt")',
    "use_fast_accum": "use_fast_accum=True of torch._scaled_mm",
}
"""The settings of a call that change its kernels, by name. A call has the default of each setting not named."""

_DEFAULT = "default"
_LAYOUTS = ("nn", "nt", "tn", "tt")
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Launches:
    """The kernels that a call of a library launched, in their order.

    Attributes
    ----------
    launches : tuple of (str, grid or None)
        The name of each kernel, and its grid (x, y, z). A Memset has no grid.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.hardware.recorded_kernels("torch.matmul", "float16", (64, 64, 300), device="h200")
    >>> found.grid, found.names[0].split("(")[0]
    ((4, 1, 1), 'void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_nn_align2>')
    """

    launches: tuple[tuple[str, Grid | None], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels: `kernel=` of `fs.library_sum`."""
        return tuple(name for name, _ in self.launches)

    @property
    def grid(self) -> Grid | None:
        """The grid of the kernel that multiplies, or None if there is not exactly one: `grid=` of `fs.library_sum`."""
        grids = [grid for name, grid in self.launches if not is_auxiliary(name)]
        return grids[0] if len(grids) == 1 else None

    def __str__(self) -> str:
        return "\n".join(name if grid is None else f"{name}, grid {grid}" for name, grid in self.launches)


@functools.cache
def _table(device: str) -> dict[tuple[Any, ...], dict[tuple[int, ...], Launches]]:
    """Return the recorded calls of a device: (function, version, dtype, result, settings, workspace, layout), shape."""
    content = json.loads(gzip.decompress((datasets.folder("gpu-kernels") / f"{device}.json.gz").read_bytes()))
    names: Sequence[str] = content["names"]
    found = {}
    for group in content["calls"]:
        key = (
            group["function"], group["version"], group["dtype"], group["result"], frozenset(group["settings"]),
            group["workspace"], group["layout"],
        )  # fmt: skip
        found[key] = {
            tuple(map(int, shape.split(","))): Launches(
                tuple((names[name], (grid[0], grid[1], grid[2]) if grid else None) for name, *grid in launches)
            )
            for shape, launches in group["shapes"].items()
        }
    return found


def default_result(function: str, dtype: str) -> str:
    """Return the dtype of a recorded call's result: that of the operands, but of FP8 products "float32".

    >>> default_result("torch.matmul", "float16"), default_result("torch._scaled_mm", "float8_e5m2")
    ('float16', 'float32')
    """
    return "float32" if function == "torch._scaled_mm" else dtype


def recorded_kernels(
    function: str, dtype: str, shape: Sequence[int], *, device: str, version: str | None = None,
    result: str | None = None, layout: str = "nn", settings: Sequence[str] = (), workspace: str = _DEFAULT,
) -> Launches:  # fmt: skip
    """Return the kernels that a call of a library launched on a GPU, if the shape was recorded.

    Parameters
    ----------
    function : str
        A function of a library, as in `fs.library_sum`: "torch.matmul", "torch.bmm", "torch._scaled_mm", ...
    dtype : str
        The dtype of the operands; of `torch._scaled_mm` that of a. Its b is "float8_e4m3fn".
    shape : sequence of int
        (M, N, K), or (batch, M, N, K).
    device : str
        "h200".
    version : str, optional
        The version of the library. Default: the recorded one.
    result : str, optional
        The dtype of the result. Default: that of the operands; of `torch._scaled_mm` "float32", which was recorded.
    layout : str
        "nn": a and b are C-contiguous. "t" stands for an operand that is contiguous along the other axis: the second
        operand of a linear layer makes it "nt".
    settings : sequence of str
        The settings of the call that are not the default: names of `SETTINGS`, such as "allow_tf32".
    workspace : str
        The value of CUBLAS_WORKSPACE_CONFIG. Default: not set.

    Returns
    -------
    Launches
        `names` and `grid` are the arguments `kernel` and `grid` of `fs.library_sum`.

    Raises
    ------
    NotDescribedError
        A ValueError: for a call that was not recorded. The message has the nearest recorded shapes.
    ValueError
        For an unknown layout or setting.

    Examples
    --------
    >>> import floatsim as fs
    >>> found = fs.hardware.recorded_kernels(
    ...     "torch.matmul", "float32", (64, 64, 4096), device="h200", settings=["allow_tf32"]
    ... )
    >>> found.grid, [name.split("<")[0] for name in found.names]
    ((1, 1, 32), ['void cutlass::Kernel2', 'void cublasLt::splitKreduce_kernel'])
    """
    where = known_device(device)
    sizes = tuple(as_index(n, "shape", 0, 1 << 40) for n in shape)
    if layout not in _LAYOUTS:
        raise ValueError(f"layout={layout!r} is not known; {name_hint(str(layout), _LAYOUTS)}")
    chosen = (settings,) if isinstance(settings, str) else tuple(settings)
    for name in chosen:
        if name not in SETTINGS:
            raise ValueError(f"settings has {name!r}, which is not known; {name_hint(str(name), SETTINGS)}")
    table = _table(where)
    asked = {
        "function": function, "version": release(version), "dtype": dtype,
        "result": result or default_result(function, dtype), "settings": frozenset(chosen),
        "workspace": workspace, "layout": layout,
    }  # fmt: skip
    keys = list(table)
    for place, (name, value) in enumerate(asked.items()):
        if value is None:
            continue
        fitting = [key for key in keys if key[place] == value]
        if not fitting:
            raise NotDescribedError(_not_recorded(function, device, name, value, {key[place] for key in keys}))
        keys = fitting
    shapes = table[keys[0]]
    if sizes in shapes:
        return shapes[sizes]
    near = ", ".join(str(each) for each in _nearest(sizes, shapes))
    raise NotDescribedError(
        f"{function} of {dtype}, shape {sizes}, on device={device!r} was not recorded; the nearest recorded shapes are "
        f"{near}. Pass kernel= and grid=, which fs.hardware.kernels or a profiler shows"
    )


def _not_recorded(function: str, device: str, name: str, value: Any, known: set[Any]) -> str:
    def written(x: Any) -> str:
        return repr(sorted(x)) if isinstance(x, frozenset) else repr(x)

    if name == "function" and value in FUNCTIONS:
        return (
            f"the kernels of {value} on device={device!r} were not recorded by shape: pass kernel= and grid=, which "
            "fs.hardware.kernels or a profiler shows"
        )
    listed = ", ".join(sorted(map(written, known)))
    of = "" if name == "function" else f" of {function}"
    return f"{name}={written(value)}{of} on device={device!r} was not recorded; recorded: {listed}"


def _nearest(sizes: tuple[int, ...], shapes: Mapping[tuple[int, ...], Launches]) -> list[tuple[int, ...]]:
    """Return the three recorded shapes whose sizes have the nearest ratios to the sizes given."""

    def distance(shape: tuple[int, ...]) -> tuple[bool, float]:
        ratios = (abs(math.log(max(x, 1) / max(y, 1))) for x, y in zip(shape, sizes, strict=False))
        return len(shape) != len(sizes), sum(ratios)

    return sorted(shapes, key=distance)[:3]
