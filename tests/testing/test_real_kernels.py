"""`fs.identify` on the kernels of installed libraries: the table of docs/cross-check.md, and other shapes.

What is named must have the bits of the kernel on other inputs. Names depend on the processor and on the versions of the
libraries: on those of the table they are compared with the table.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware.cpu.device import identity

pytestmark = [pytest.mark.real_kernels, pytest.mark.full]

PAGE = Path(__file__).parents[2] / "docs" / "cross-check.md"
ROW = re.compile(r"^\| (`[^`]*`|the same) \| `\((\d+), (\d+), (\d+)\)` \| `(\w+)` \| (.*) \|$", re.MULTILINE)
OF_THE_TABLE = {"numpy": "2.4.6", "torch": "2.15.0"}


def rows() -> Iterator[Any]:
    """Yield the kernel, the shape, the format and the names of each row."""
    text = PAGE.read_text(encoding="utf-8").partition("### Kernels that were identified")[2]
    kernel = ""
    for m in ROW.finditer(text):
        kernel = kernel if m[1] == "the same" else m[1].strip("`")
        names = re.findall("`([^`]*)`", m[6])
        yield pytest.param(kernel, (int(m[2]), int(m[3]), int(m[4])), m[5], names)


ROWS = list(rows())


def the_kernel(text: str) -> Callable[..., Any]:
    """Return the function of a text. Overflow on hard inputs is no warning."""
    names: dict[str, Any] = {"np": np, "fs": fs}
    if "torch" in text:
        names["torch"] = pytest.importorskip("torch", reason="needs torch: the extra `torch`")
        names["torch"].set_num_threads(1)
    function = eval(text, names)

    def kernel(a: Any, b: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return function(a, b)

    return kernel


def assert_same_bits(kernel: Callable[..., Any], name: str, shape: tuple[int, int, int], fmt: str) -> None:
    """Assert that a description has the kernel's bits on normal and cancelling inputs with another seed."""
    for kind in ("normal", "cancelling"):
        a, b = fs.testing.hard_inputs(shape, fmt, kind, seed=9)
        fs.testing.assert_bit_equal(kernel(a, b), fs.matmul(a, b, accumulate=name, format=fmt))


def as_pattern(name: str) -> str:
    return re.escape(name).replace(re.escape("..."), ".*")


def is_the_machine_of_the_table(text: str) -> bool:
    library = "torch" if "torch" in text else "numpy"
    return "AMD EPYC, family 25 model 17" in identity().name and version(library).startswith(OF_THE_TABLE[library])


@pytest.mark.parametrize(("text", "shape", "fmt", "names"), ROWS)
def test_row(text, shape, fmt, names):
    kernel = the_kernel(text)
    found = fs.identify(kernel, *fs.testing.hard_inputs(shape, fmt), other_k=False)
    for name in found.names:
        assert_same_bits(kernel, name, shape, fmt)
    if is_the_machine_of_the_table(text):
        assert len(found.names) == len(names)
        for name, wanted in zip(found.names, names, strict=True):
            assert re.fullmatch(as_pattern(wanted), name)


def test_the_table_is_read():
    assert len(ROWS) == 14


@pytest.mark.parametrize("shape", [(32, 33, 32), (48, 129, 40), (64, 1000, 64)])
def test_products_of_other_shapes(shape):
    """Lengths that are no multiple of a block."""
    kernel = the_kernel("np.matmul")
    found = fs.identify(kernel, *fs.testing.hard_inputs(shape, "fp32"))
    for name in found.names:
        assert_same_bits(kernel, name, shape, "fp32")
    if is_the_machine_of_the_table("np.matmul"):
        assert found.names or all(region.names for region in found.regions)
