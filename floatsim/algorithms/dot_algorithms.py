"""The dot algorithms that JAX and XLA name: BF16_BF16_F32_X3, TF32_TF32_F32 and others.

Each is a row: the slices of an operand, the products of slices in the order in which they are added, and the
accumulator. XLA has two lowerings on an NVIDIA GPU. The names, and the types of plain algorithms: openxla/xla,
xla_data.proto, and jax.lax.DotAlgorithmPreset.

- "triton": a kernel of XLA's Triton emitter. openxla/xla, xla/backends/gpu/codegen/triton/transforms/
  stablehlo_lower_to_triton.cc (EmitBF16x3Matmul, EmitBF16x6Matmul, EmitBF16x9Matmul, ZeroNaNs, SplitF32) and
  round_f32_to_tf32_for_tf32_dot_pass.cc; triton-lang/triton, F32DotTC, for TF32_TF32_F32_X3.
- "library": products of cuBLAS. openxla/xla, xla/service/gpu/transforms/dot_algorithm_rewriter.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim.accumulation import Accumulation, AccumulationLike, Sequential, as_accumulation
from floatsim.accumulation.library_rules import NotDescribedError
from floatsim.arrays.array.conversion import array, as_float_array
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.types import Floats
from floatsim.arrays.sums.products import matmul
from floatsim.formats import BF16, FP16, FP32, TF32, FloatFormat
from floatsim.formats._validation import as_index, as_word, name_hint
from floatsim.formats.rounding import Rounding

__all__ = ["DOT_ALGORITHMS", "DotAlgorithm", "dot_algorithm"]

Float32: TypeAlias = NDArray[np.float32]

_EVEN, _AWAY, _ZERO = Rounding.TIES_TO_EVEN, Rounding.TIES_TO_AWAY, Rounding.TOWARD_ZERO
_LOWERINGS = ("triton", "library")
_MOST = 1 << 30


@dataclass(frozen=True)
class DotAlgorithm:
    """How XLA computes a product by one of its named algorithms. `dot_algorithm` returns the rows.

    An operand x has the slices s[0], s[1], ...: s[0] is x rounded to the format, s[1] is x - s[0] rounded, and so on.
    The differences are computed in FP32.

    Attributes
    ----------
    name : str
        The name in JAX, such as "BF16_BF16_F32_X3".
    lowering : str
        "triton" or "library".
    format : FloatFormat
        The format of the slices.
    roundings : tuple of Rounding
        The rounding mode of each slice. TOWARD_ZERO: the low bits of the FP32 number are set to zero.
    products : tuple of (int, int)
        The slices of a and b of each product, in the order of the additions.
    chained : bool
        True: a block of K is one chain of instructions on one accumulator, and the blocks are added in FP32. False:
        each product is computed over all of K, and the results are added in FP32.
    cleared : str
        Which values of the sum become zero before the last product, so that it decides for infinite operands: "nan",
        "not finite", or "" for none.
    accumulation : Accumulation, optional
        The sum of the products, if it is not that of a matrix unit.

    Examples
    --------
    >>> import floatsim as fs
    >>> x3 = fs.algorithms.dot_algorithm("BF16_BF16_F32_X3")
    >>> x3.format.name, x3.products, x3.chained
    ('BF16', ((1, 0), (0, 1), (0, 0)), True)
    """

    name: str
    lowering: str
    format: FloatFormat
    roundings: tuple[Rounding, ...]
    products: tuple[tuple[int, int], ...]
    chained: bool = True
    cleared: str = ""
    accumulation: Accumulation | None = None

    def slices(self, x: Floats, argument: str = "x") -> list[FloatArray]:
        """Return the slices of x, from the largest to the smallest.

        Parameters
        ----------
        x : array_like of float
            With more than one slice: FP32 numbers, as XLA requires.
        argument : str
            The name of x in an error.

        Raises
        ------
        TypeError
            If x has another format and the algorithm more than one slice.

        Examples
        --------
        >>> import floatsim as fs, numpy as np
        >>> row = fs.algorithms.dot_algorithm("BF16_BF16_F32_X6", "library")
        >>> [s.item() for s in row.slices(np.float32(1 / 3))]
        [0.33203125, 0.0012969970703125, 5.0961971282958984e-06]
        """
        read = as_float_array(x, argument)
        if len(self.roundings) == 1:
            return [read if read.format == self.format else array(read, self.format, rounding=self.roundings[0])]
        if read.format != FP32:
            raise TypeError(f"{self.name} splits FP32 operands, and {argument} is {read.format}; convert it to FP32")
        rest, found = np.asarray(read, np.float32), []
        with np.errstate(invalid="ignore", over="ignore"):
            for rounding in self.roundings:
                if rounding is _ZERO:
                    found.append(array(_cut(rest, self.format), self.format))
                else:
                    found.append(array(rest, self.format, rounding=rounding))
                rest = rest - np.asarray(array(found[-1], FP32), np.float32)
        return found

    def matmul(
        self, a: Floats, b: Floats, *, unit: AccumulationLike = "hopper", block_k: int | None = None
    ) -> Float32:  # fmt: skip
        """Return the product of a and b by this algorithm.

        Parameters
        ----------
        a : array_like of float, (..., M, K)
        b : array_like of float, (..., K, N)
            FP32 numbers. The plain algorithms round other formats to theirs, too, as `roundings` says.
        unit : description, format or text
            The sum of one product of slices: a matrix unit, such as "hopper" or "blackwell", or any other description.
            F32_F32_F32 does not read it: it adds in FP32, fused.
        block_k : int, optional
            The terms of K that one `tl.dot` of the kernel takes. The results of the blocks are added in FP32. Default:
            all of K. It has no effect on plain algorithms, whose accumulator stays in the unit. Only with "triton".

        Returns
        -------
        float32 ndarray, (..., M, N)

        Raises
        ------
        TypeError
            If an operand of an algorithm with more than one slice is not FP32.
        ValueError
            For shapes that do not fit, and for `block_k` of a "library" lowering.

        Examples
        --------
        >>> import floatsim as fs, numpy as np
        >>> a, b = np.float32([[1 + 2**-10 + 2**-22]]), np.float32([[3.0]])
        >>> for name in ("BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6"):
        ...     print(fs.algorithms.dot_algorithm(name).matmul(a, b).item())
        3.0
        3.0029296875
        3.0029304027557373
        """
        if block_k is not None:
            block_k = as_index(block_k, "block_k", 1, _MOST)
        if block_k is not None and not self.chained:
            raise ValueError(f"block_k={block_k} has no meaning for {self.name} with the lowering {self.lowering!r}")
        x, y = as_float_array(a, "a"), as_float_array(b, "b")
        if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
            raise ValueError(f"a {x.shape} and b {y.shape} do not fit: a is (..., M, K), and b is (..., K, N)")
        left, right = self.slices(x, "a"), self.slices(y, "b")
        sums = self.accumulation or as_accumulation(unit, "unit")
        if len(self.products) == 1:
            return np.asarray(matmul(left[0], right[0], accumulate=sums, format=FP32), np.float32)
        if not self.chained:
            return self._added(left, right, sums)
        k = x.shape[-1]
        step = max(k, 1) if block_k is None else block_k
        total: Any = np.float32(0)
        for first in range(0, max(k, 1), step):
            block = slice(first, first + step)
            part = self._chain([s[..., block] for s in left], [s[..., block, :] for s in right], sums)
            with np.errstate(invalid="ignore", over="ignore"):
                total = total + part
        return np.asarray(total, np.float32)

    def _chain(self, left: list[FloatArray], right: list[FloatArray], sums: Accumulation) -> Float32:
        """Return one block: each product starts from the sum of those before."""
        result: Any = None
        for number, (i, j) in enumerate(self.products):
            if number == len(self.products) - 1:
                result = self._clear(result)
            result = np.asarray(matmul(left[i], right[j], result, accumulate=sums, format=FP32), np.float32)
        return np.asarray(result, np.float32)

    def _added(self, left: list[FloatArray], right: list[FloatArray], sums: Accumulation) -> Float32:
        """Return the sum of whole products, added in FP32 one after the other."""
        result: Any = None
        for number, (i, j) in enumerate(self.products):
            product = np.asarray(matmul(left[i], right[j], accumulate=sums, format=FP32), np.float32)
            if number == len(self.products) - 1:
                result = self._clear(result)
            with np.errstate(invalid="ignore", over="ignore"):
                result = product if result is None else result + product
        return np.asarray(result, np.float32)

    def _clear(self, x: Float32) -> Float32:
        if not self.cleared:
            return x
        kept = np.isfinite(x) if self.cleared == "not finite" else ~np.isnan(x)
        return np.where(kept, x, np.float32(0))


def _cut(x: Float32, fmt: FloatFormat) -> Float32:
    """Return x with the bits below the fraction of a format of 8 exponent bits set to zero, as a bit mask does."""
    mask = np.uint32(0xFFFFFFFF << (FP32.precision - fmt.precision) & 0xFFFFFFFF)
    return (x.view(np.uint32) & mask).view(np.float32)


_X3 = ((1, 0), (0, 1), (0, 0))
_X6 = ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0))
_X6_LIBRARY = ((1, 1), (0, 2), (2, 0), (0, 1), (1, 0), (0, 0))
_X9 = ((2, 2), (1, 2), (2, 1), *_X6)
_ONE = ((0, 0),)

DOT_ALGORITHMS: tuple[DotAlgorithm, ...] = (
    DotAlgorithm("F16_F16_F32", "triton", FP16, (_EVEN,), _ONE),
    DotAlgorithm("F16_F16_F32", "library", FP16, (_EVEN,), _ONE),
    DotAlgorithm("BF16_BF16_F32", "triton", BF16, (_EVEN,), _ONE),
    DotAlgorithm("BF16_BF16_F32", "library", BF16, (_EVEN,), _ONE),
    DotAlgorithm("BF16_BF16_F32_X3", "triton", BF16, (_EVEN,) * 2, _X3, cleared="not finite"),
    DotAlgorithm("BF16_BF16_F32_X3", "library", BF16, (_ZERO, _EVEN), _X3, chained=False, cleared="nan"),
    DotAlgorithm("BF16_BF16_F32_X6", "triton", BF16, (_EVEN,) * 3, _X6, cleared="not finite"),
    DotAlgorithm("BF16_BF16_F32_X6", "library", BF16, (_ZERO, _ZERO, _EVEN), _X6_LIBRARY, chained=False, cleared="nan"),
    DotAlgorithm("BF16_BF16_F32_X9", "triton", BF16, (_EVEN,) * 3, _X9, cleared="not finite"),
    DotAlgorithm("TF32_TF32_F32", "triton", TF32, (_AWAY,), _ONE),
    DotAlgorithm("TF32_TF32_F32", "library", TF32, (_EVEN,), _ONE),
    DotAlgorithm("TF32_TF32_F32_X3", "triton", TF32, (_AWAY, _ZERO), _X3, cleared="nan"),
    DotAlgorithm("F32_F32_F32", "triton", FP32, (_EVEN,), _ONE, accumulation=Sequential(FP32, fused=True)),
)
"""The described algorithms, one row for each name and lowering.

>>> import floatsim as fs
>>> [row.name for row in fs.algorithms.DOT_ALGORITHMS if row.lowering == "library"][:3]
['F16_F16_F32', 'BF16_BF16_F32', 'BF16_BF16_F32_X3']
"""

_CUBLAS = "cuBLAS chooses the kernel, and the internals are not published"
_NOT_DESCRIBED = {
    ("BF16_BF16_F32_X9", "library"): f"{_CUBLAS}",
    ("TF32_TF32_F32_X3", "library"): f"{_CUBLAS}",
    ("F32_F32_F32", "library"): f"{_CUBLAS}; fs.library_sum describes recorded kernels",
    **{
        (name, lowering): reason
        for lowering in _LOWERINGS
        for name, reason in {
            "F16_F16_F16": "the order of sums with an FP16 accumulator was not found in a published source",
            "BF16_BF16_BF16": "the order of sums with a BF16 accumulator was not found in a published source",
            "F64_F64_F64": "the order of sums of the FP64 instructions depends on the kernel; fs.library_sum describes "
            "recorded kernels",
            "ANY_F8_ANY_F8_F32": "use fs.scaled_mm(a, b, 1, 1, use_fast_accum=False)",
            "ANY_F8_ANY_F8_F32_FAST_ACCUM": "use fs.scaled_mm(a, b, 1, 1, use_fast_accum=True)",
            "ANY_F8_ANY_F8_ANY": "use fs.scaled_mm(a, b, 1, 1, format=..., use_fast_accum=False)",
            "ANY_F8_ANY_F8_ANY_FAST_ACCUM": "use fs.scaled_mm(a, b, 1, 1, format=..., use_fast_accum=True)",
            "DEFAULT": "XLA chooses an algorithm by the types and the device; name it",
        }.items()
    },
}
"""The names of JAX that are not described, with the reason."""


def dot_algorithm(name: Any, lowering: str = "triton") -> DotAlgorithm:
    """Return the description of a dot algorithm of JAX, as XLA lowers it on an NVIDIA GPU.

    Parameters
    ----------
    name : str or jax.lax.DotAlgorithmPreset
        Such as "BF16_BF16_F32_X3". Upper and lower case are the same.
    lowering : str
        "triton": a kernel that XLA generates. "library": products of cuBLAS that XLA adds.

    Returns
    -------
    DotAlgorithm

    Raises
    ------
    NotDescribedError
        A ValueError: for a name of JAX whose bits follow from no published source. The message says why.
    TypeError
        If name is neither.
    ValueError
        For an unknown name or lowering.

    Notes
    -----
    The rows were read in XLA's published source. On an H200, 12 products of Triton's own "bf16x3" and "bf16x6", and
    those of "tf32x3", are equal to the Triton rows X3 and X6. XLA's kernels were not recorded, and the rows of the
    library lowering were not compared with a GPU. JAX 0.10 on a CPU computes BF16_BF16_F32, its X3 and its X6 in FP32,
    and refuses X9 and TF32.

    Examples
    --------
    >>> import floatsim as fs, numpy as np
    >>> a, b = np.float32([[1 + 2**-9]]), np.float32([[1.0]])
    >>> fs.algorithms.dot_algorithm("TF32_TF32_F32").matmul(a, b).item()
    1.001953125
    >>> fs.algorithms.dot_algorithm("BF16_BF16_F32").matmul(a, b).item()
    1.0
    """
    kind = as_word(lowering, "lowering", _LOWERINGS)
    text = getattr(name, "name", name)
    key = text.strip().upper() if isinstance(text, str) else text
    for row in DOT_ALGORITHMS:
        if (row.name, row.lowering) == (key, kind):
            return row
    if not isinstance(key, str):
        raise TypeError(f"name must be a text or a jax.lax.DotAlgorithmPreset, not {name!r}")
    if (key, kind) in _NOT_DESCRIBED:
        raise NotDescribedError(f"{key} with the lowering {kind!r} is not described: {_NOT_DESCRIBED[key, kind]}")
    known = tuple(dict.fromkeys([*(row.name for row in DOT_ALGORITHMS), *(each for each, _ in _NOT_DESCRIBED)]))
    raise ValueError(f"name={name!r} is not a dot algorithm of JAX; {name_hint(key, known)}")
