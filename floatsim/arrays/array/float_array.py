"""FloatArray: codes and the format that gives them meaning, under NumPy's protocols.

This module imports none of the operations. Operations register themselves with `implements`. NumPy's operators, ufuncs
and functions on a FloatArray call the registered functions (NumPy's "Interoperability" protocols, NEP 13 and 18).
"""

from __future__ import annotations

import importlib
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from floatsim.arrays.array.interop import dlpack_capsule, widened
from floatsim.arrays.array.types import Axes, Floats, Integers, MethodKeywords
from floatsim.arrays.call import backends
from floatsim.arrays.call.options import RoundingKeywords
from floatsim.formats import FloatFormat, FormatLike, as_format, html_name

if TYPE_CHECKING:
    from floatsim.arrays.array.types import FloatOperators as NDArrayOperatorsMixin
else:
    from numpy.lib.mixins import NDArrayOperatorsMixin

__all__ = ["FloatArray", "from_codes", "implements", "load", "save", "wrap"]

F = TypeVar("F", bound=Callable[..., Any])

_REGISTRY: dict[Any, Callable[..., Any]] = {}


def implements(*numpy_functions: Any) -> Callable[[F], F]:
    """Register a function as the implementation of NumPy functions and ufuncs on FloatArrays, or under a name."""

    def register(function: F) -> F:
        for numpy_function in numpy_functions:
            _REGISTRY[numpy_function] = function
        return function

    return register


_PROVIDERS = (
    "floatsim.arrays.elementwise.arithmetic",
    "floatsim.arrays.array_functions",
    "floatsim.arrays.elementwise.comparison",
    "floatsim.arrays.array.conversion",
    "floatsim.arrays.elementwise.functions",
    "floatsim.arrays.sums.products",
    "floatsim.arrays.sums.reductions",
)
"""The modules that register operations; loaded when the first is needed."""


def _registered(key: Any) -> Callable[..., Any] | None:
    """Return the function that is registered for a NumPy function, a ufunc, or a name; None without one."""
    if key not in _REGISTRY:
        for module in _PROVIDERS:
            importlib.import_module(module)
    return _REGISTRY.get(key)


def _missing(name: str) -> TypeError:
    """Return the error for a NumPy function that FloatArrays do not support, with the function to use."""
    advice = _registered("advice")
    assert advice is not None
    return TypeError(f"np.{name} does not take FloatArrays; {advice(name)}")


class FloatArray(NDArrayOperatorsMixin):
    """An n-dimensional array of numbers in any `FloatFormat`.

    Make one with `fs.array(values, format)` or `fs.from_codes(codes, format)`. NumPy's operators, ufuncs and shape
    functions accept it. Each operation rounds once to the format, with the options of `fs.context`. `np.asarray`
    returns the NumPy or ml_dtypes array where the format has a dtype, and float64 otherwise.

    Parameters
    ----------
    codes : ndarray of unsigned int
        The codes, of dtype `format.code_dtype`. The array is not copied.
    format : FloatFormat
        The format of the codes.

    Examples
    --------
    >>> import floatsim as fs
    >>> x = fs.array([0.1, 1.0, 65504.0], "fp16")
    >>> x + x
    FloatArray([0.19995, 2.0, inf], FP16)
    >>> x.codes
    array([11878, 15360, 31743], dtype=uint16)
    """

    __slots__ = ("_codes", "_format")
    _codes: NDArray[np.unsignedinteger[Any]]
    _format: FloatFormat

    def __init__(self, codes: NDArray[np.unsignedinteger[Any]], format: FloatFormat) -> None:
        if codes.dtype != format.code_dtype:
            raise TypeError(f"codes of {format.name} are {format.code_dtype}, not {codes.dtype}; see fs.from_codes")
        self._codes = codes
        self._format = format

    # -- attributes ----------------------------------------------------------------------------------------
    @property
    def codes(self) -> NDArray[np.unsignedinteger[Any]]:
        """The codes: unsigned integers of the format's `code_dtype`. A view, not a copy."""
        return self._codes

    @property
    def format(self) -> FloatFormat:
        """The format of the elements."""
        return self._format

    @property
    def values(self) -> NDArray[np.float64]:
        """The values as float64, exact."""
        decoded: NDArray[np.float64] = backends.emulator().decode(self._codes, self._format)
        return decoded

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The NumPy or ml_dtypes dtype of the format, or None."""
        return self._format.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as in NumPy."""
        return self._codes.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._codes.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._codes.size

    @property
    def nbytes(self) -> int:
        """The size of the codes in bytes."""
        return self._codes.nbytes

    @property
    def T(self) -> FloatArray:  # noqa: N802  # NumPy's name
        """The array with its axes in reverse order."""
        return self._like(self._codes.T)

    def _like(self, codes: Any) -> FloatArray:
        return FloatArray(np.asarray(codes), self._format)

    def __len__(self) -> int:
        return len(self._codes)

    def __iter__(self) -> Iterator[FloatArray]:
        return (self._like(codes) for codes in self._codes)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"{self.size} elements have no one truth value; compare, then np.any or np.all")
        return bool(self.nonzero().item())

    def nonzero(self) -> NDArray[np.bool_]:
        """Return which elements are not zero, as a bool array. NaN is not zero."""
        codes, fmt = self._codes, self._format
        if not fmt.has_zero:
            return np.ones(codes.shape, np.bool_)
        nonzero = codes & fmt.code_dtype.type(fmt.magnitude_mask) != 0
        return np.asarray(nonzero if fmt.has_signed_zero else nonzero | (codes == fmt.canonical_nan))

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:
        return int(self.item())

    def item(self) -> float:
        """Return the only element as a Python float."""
        if self.size != 1:
            raise ValueError(f"an array of shape {self.shape} is not one number; index it, or use .tolist() or .values")
        return float(self.values.item())

    def __round__(self, ndigits: int | None = None) -> Any:
        """Return the nearest integer of one element; with `ndigits` a FloatArray: np.round describes it."""
        if ndigits is None:
            return round(self.item())
        return self._reduce(np.round, ndigits)

    def round(self, decimals: int = 0) -> FloatArray:
        """Round to decimals, then to the format. See the page "Other libraries" of the documentation."""
        rounded: FloatArray = self._reduce(np.round, decimals)
        return rounded

    def tolist(self) -> Any:
        """Return the values as nested lists of Python floats."""
        return self.values.tolist()

    # -- indexing and shape --------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> FloatArray:
        return self._like(self._codes[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        operand_codes = _registered("operand_codes")
        assert operand_codes is not None
        self._codes[index] = operand_codes(value, self._format, "value")

    def reshape(self, *shape: Any) -> FloatArray:
        """Return the same elements in another shape."""
        return self._like(self._codes.reshape(*shape))

    def ravel(self) -> FloatArray:
        """Return the elements as a vector, without a copy where that is possible."""
        return self._like(self._codes.ravel())

    def flatten(self) -> FloatArray:
        """Return a copy of the elements as a vector."""
        return self._like(self._codes.flatten())

    def transpose(self, *axes: Any) -> FloatArray:
        """Return the array with its axes in another order; without arguments, in reverse order."""
        return self._like(self._codes.transpose(*axes))

    def squeeze(self, axis: Any = None) -> FloatArray:
        """Return the array without axes of length one."""
        return self._like(self._codes.squeeze(axis))

    def copy(self) -> FloatArray:
        """Return a copy."""
        return self._like(self._codes.copy())

    def astype(self, format: FormatLike, **options: Unpack[RoundingKeywords]) -> FloatArray:
        """Return this array converted to another format: `fs.convert` describes the keywords."""
        convert = _registered("convert")
        assert convert is not None
        converted: FloatArray = convert(self, format, **options)
        return converted

    # -- reductions ----------------------------------------------------------------------------------------
    def _reduce(self, function: Any, *args: Any, **options: Any) -> FloatArray:
        reduce = _registered(function)
        assert reduce is not None
        reduced: FloatArray = reduce(self, *args, **options)
        return reduced

    def sum(self, axis: Axes = None, **options: Unpack[MethodKeywords]) -> FloatArray:
        """Return the sum. `fs.sum` describes the keywords. The default `format` is the array's."""
        return self._reduce(np.sum, axis, **options)

    def mean(self, axis: Axes = None, **options: Unpack[MethodKeywords]) -> FloatArray:
        """Return the mean. `fs.mean` describes the keywords. The default `format` is the array's."""
        return self._reduce(np.mean, axis, **options)

    def prod(self, axis: Axes = None, **options: Unpack[MethodKeywords]) -> FloatArray:
        """Return the product. `fs.prod` describes the keywords. The default `format` is the array's."""
        return self._reduce(np.prod, axis, **options)

    def var(self, axis: Axes = None, **options: Unpack[MethodKeywords]) -> FloatArray:
        """Return the variance. `fs.var` describes the keywords. The default `format` is the array's."""
        return self._reduce(np.var, axis, **options)

    def cumsum(self, axis: Axes = None, **options: Unpack[MethodKeywords]) -> FloatArray:
        """Return the running sum. `fs.cumsum` describes the keywords. The default `format` is the array's."""
        return self._reduce(np.cumsum, axis, **options)

    def max(self, axis: Any = None, **options: Any) -> FloatArray:
        """Return the largest element; NaN if one is NaN, and +0 is greater than -0. The keywords are np.max's."""
        largest: FloatArray = self._reduce(np.max, axis, **options)
        return largest

    def min(self, axis: Any = None, **options: Any) -> FloatArray:
        """Return the smallest element; NaN if one is NaN, and -0 is less than +0. The keywords are np.min's."""
        smallest: FloatArray = self._reduce(np.min, axis, **options)
        return smallest

    def argmax(self, axis: Any = None, **options: Any) -> Any:
        """Return the index of the first NaN, or of the first largest element. The keywords are np.argmax's."""
        return self._reduce(np.argmax, axis, **options)

    def argmin(self, axis: Any = None, **options: Any) -> Any:
        """Return the index of the first NaN, or of the first smallest element. The keywords are np.argmin's."""
        return self._reduce(np.argmin, axis, **options)

    def clip(self, min: Any = None, max: Any = None, **options: Any) -> FloatArray:
        """Return the elements, limited to min and max. The keywords are np.clip's."""
        clipped: FloatArray = self._reduce(np.clip, min, max, **options)
        return clipped

    def argsort(self, axis: Any = -1) -> NDArray[np.intp]:
        """Return the indices of a stable sort by value, NaNs last."""
        places: Any = self._reduce(np.argsort, axis)
        return np.asarray(places)

    def any(self, axis: Any = None, **options: Any) -> Any:
        """Return whether an element is not zero. NaN is not zero."""
        return np.any(self.nonzero(), axis, **options)

    def all(self, axis: Any = None, **options: Any) -> Any:
        """Return whether no element is zero. NaN is not zero."""
        return np.all(self.nonzero(), axis, **options)

    def dot(self, b: Floats, **options: Any) -> FloatArray:
        """Return the product with a vector or matrix. `fs.dot` describes the keywords.

        The default `format` is the common format of both, if they have one.
        """
        return self._reduce(np.dot, b, **options)

    # -- NumPy's protocols ---------------------------------------------------------------------------------
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        own = self._format.dtype
        if own is not None and dtype in (None, own):
            viewed = self._codes.view(own)
            return viewed.copy() if copy else viewed
        if copy is False:
            raise ValueError(f"a {self._format.name} FloatArray has no {dtype or 'NumPy dtype'} view; a copy is needed")
        return self.values if dtype is None else self.values.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        call = method == "__call__"
        out = keywords.pop("out", None)
        operands = (*inputs, *(out or ()))
        for x in operands:
            if hasattr(x, "__array_ufunc__") and not isinstance(x, FloatArray | np.ndarray | np.generic):
                return NotImplemented
        name = ufunc.__name__ if call else f"{ufunc.__name__}.{method}"
        function = _registered(ufunc if call else (ufunc, method))
        if function is None:
            raise _missing(name)
        if call and keywords:
            raise TypeError(
                f"np.{name} of FloatArrays takes no {', '.join(keywords)}; floatsim's own functions take the rounding "
                "options and format="
            )
        if out is not None:
            keywords["out"] = out[0]
        return function(*inputs, **keywords)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        function = _registered(func)
        for kind in types:
            if not issubclass(kind, FloatArray | np.ndarray):
                return NotImplemented
        if function is None:
            raise _missing(
                func.__module__.removeprefix("numpy").lstrip(".") + "." * (func.__module__ != "numpy") + func.__name__
            )
        return function(*args, **kwargs)

    # -- DLPack --------------------------------------------------------------------------------------------
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule of the codes, with the type of the format; the consumer shares the memory.

        BF16 and FP8 have types in DLPack. A BufferError says that a format has none.
        """
        return dlpack_capsule(
            self._codes, self._format, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's name of the host memory."""
        kind, number = self._codes.__dlpack_device__()
        return int(kind), int(number)

    # -- text ----------------------------------------------------------------------------------------------
    def __format__(self, spec: str) -> str:
        """Return one element as `format(float(x), spec)`. Without a spec, the text of the whole array."""
        if not spec:
            return str(self)
        if self.size != 1:
            raise TypeError(
                f"format {spec!r} is for one number, and the array has shape {self.shape}; format its elements: "
                f"[format(v, {spec!r}) for v in x.ravel().tolist()]"
            )
        return format(self.item(), spec)

    def __repr__(self) -> str:
        body = np.array2string(self.values, separator=", ", prefix="FloatArray(", formatter=self._formatter())
        return f"FloatArray({body}, {self._format.name})"

    def _formatter(self) -> Any:
        return {"float_kind": self._show}

    def _show(self, value: float) -> str:
        digits = 2 + self._format.precision * 30103 // 100000  # enough to tell neighbours apart
        text = f"{value:.{digits}g}"
        return text if any(mark in text for mark in ".en") else text + ".0"

    def _repr_html_(self) -> str:
        shape = " x ".join(map(str, self.shape)) or "scalar"
        body = np.array2string(self.values, separator=", ", formatter=self._formatter())
        return f"<div>{html_name(self._format)} {shape}<pre>{body}</pre></div>"


# -- functions that move elements --------------------------------------------------------------------------------


def _moves(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the NumPy function for one FloatArray: it moves codes and reads no values."""

    def moved(a: FloatArray, *args: Any, **kwargs: Any) -> Any:
        result = function(a.codes, *args, **kwargs)
        if isinstance(result, list | tuple):
            return type(result)(FloatArray(np.asarray(part), a.format) for part in result)
        return FloatArray(np.asarray(result), a.format)

    return moved


def _joins(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the NumPy function for a sequence of arrays, which must have one format."""

    def joined(arrays: Any, **kwargs: Any) -> FloatArray:
        fmt = next(x.format for x in arrays if isinstance(x, FloatArray))
        operand_codes = _registered("operand_codes")
        assert operand_codes is not None
        codes = [operand_codes(x, fmt, f"arrays[{i}]") for i, x in enumerate(arrays)]
        return FloatArray(np.asarray(function(codes, **kwargs)), fmt)

    return lambda arrays, axis=None, **kwargs: joined(arrays, **({} if axis is None else {"axis": axis}), **kwargs)


_MOVING: tuple[Any, ...] = (
    np.atleast_1d, np.atleast_2d, np.broadcast_to, np.copy, np.diagonal, np.expand_dims, np.flip, np.moveaxis, np.ravel,
    np.repeat, np.reshape, np.roll, np.rot90, np.split, np.squeeze, np.swapaxes, np.take, np.tile, np.transpose,
    np.array_split, np.atleast_3d, np.delete, np.dsplit, np.empty_like, np.fliplr, np.flipud, np.hsplit, np.resize,
    np.rollaxis, np.vsplit,
)  # fmt: skip
_JOINING: tuple[Any, ...] = (np.column_stack, np.concatenate, np.dstack, np.hstack, np.stack, np.vstack)
for _function in _MOVING:
    implements(_function)(_moves(_function))
for _function in _JOINING:
    implements(_function)(_joins(_function))


@implements(np.zeros_like)
def _zeros_like(a: FloatArray, **kwargs: Any) -> FloatArray:
    if not a.format.has_zero:
        raise TypeError(f"{a.format.name} has no zero")
    return FloatArray(np.zeros_like(a.codes, **kwargs), a.format)


implements(np.shape)(lambda a: a.shape)
implements(np.ndim)(lambda a: a.ndim)
implements(np.size)(lambda a, axis=None: a.size if axis is None else a.shape[axis])


# -- making, wrapping, saving -------------------------------------------------------------------------------------


def from_codes(codes: Integers, format: FormatLike) -> FloatArray:
    """Return the FloatArray with these codes.

    An array of the format's code dtype is not copied, as in np.asarray.

    Parameters
    ----------
    codes : array_like of int
        Codes, 0 to 2**bits - 1, of any shape.
    format : format
        The format of the codes.

    Returns
    -------
    FloatArray

    Raises
    ------
    TypeError
        If `codes` are not integers.
    ValueError
        If a code does not fit the bits of the format.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.from_codes([0x7E, 0x7F], "e4m3")
    FloatArray([448.0, nan], E4M3)
    """
    format = as_format(format)
    return FloatArray(checked_codes(codes, format), format)


def checked_codes(codes: Any, fmt: FloatFormat) -> NDArray[np.unsignedinteger[Any]]:
    """Return `codes` as an array of the format's code dtype, or raise an error if a code does not fit its bits."""
    if isinstance(codes, FloatArray):
        raise TypeError(f"codes must be unsigned integers, not a {codes.format.name} FloatArray; use its .codes")
    given = np.array(codes, dtype=object) if isinstance(codes, list | tuple | int) else widened(np.asarray(codes))
    if given.dtype.kind == "O" and all(isinstance(c, int | np.integer) for c in given.flat):
        wrong = [c for c in given.flat if not 0 <= c <= fmt.sign_mask | fmt.magnitude_mask]
        if wrong:
            raise ValueError(f"code {wrong[0]} does not fit the {fmt.bits} bits of {fmt.name}")
        return given.astype(fmt.code_dtype)
    if given.dtype.kind not in "ui" and given.size:
        raise TypeError(f"codes must be integers, not {given.dtype}")
    if given.dtype.itemsize * 8 > fmt.bits or given.dtype.kind == "i":
        outside = (given < 0) | (given > fmt.sign_mask | fmt.magnitude_mask) if fmt.bits < 64 else given < 0
        if np.any(outside):
            bad = given[outside].ravel()[0]
            raise ValueError(f"code {bad} does not fit the {fmt.bits} bits of {fmt.name}")
    return given.astype(fmt.code_dtype, copy=False)


def wrap(codes: NDArray[Any], format: FloatFormat, as_float_array: bool) -> Any:
    """Return codes as a FloatArray, or as the NumPy array where that is possible and `as_float_array` is False."""
    dtype = format.dtype
    if as_float_array or dtype is None:
        return FloatArray(np.asarray(codes), format)
    return codes.view(dtype)[()]


_SUFFIX = ".npz"


def save(file: str | Path | IO[bytes], array: Floats) -> None:
    """Save an array with its format, as an .npz file that `np.load` also opens (codes and a JSON description).

    `np.save` does not keep the dtype of ml_dtypes arrays. `fs.save` keeps it.

    Parameters
    ----------
    file : path or binary file
        The file to write. ".npz" is added to a path without it.
    array : FloatArray or ndarray
        A FloatArray, or an array whose dtype is a format.

    Raises
    ------
    ValueError
        If the dtype of the array is no format.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import floatsim as fs, io
    >>> file = io.BytesIO()
    >>> fs.save(file, fs.array([1.5, -2.0], "e5m2")); _ = file.seek(0)
    >>> fs.load(file)
    FloatArray([1.5, -2.0], E5M2)
    """
    if isinstance(array, FloatArray):
        codes, fmt = array.codes, array.format
    else:
        given = np.asarray(array)
        fmt = as_format(given.dtype)
        codes = native(given).view(fmt.code_dtype)
    description = json.dumps(asdict(fmt) | {"specials": fmt.specials.value})
    if isinstance(file, str | Path) and not str(file).endswith(_SUFFIX):
        file = f"{file}{_SUFFIX}"
    np.savez(file, codes=codes, format=np.array(description))


# What NumPy, zipfile and json raise for damaged files; RuntimeError: a flag says that a part is encrypted.
_DAMAGED = (ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


_READERS = {".safetensors": "SafetensorsFile", ".gguf": "GgufFile"}
"""The classes that read files which `load` does not."""


def load(file: str | Path | IO[bytes]) -> FloatArray:
    """Load an array that `save` wrote, as a FloatArray.

    Parameters
    ----------
    file : path or binary file
        The file to read.

    Returns
    -------
    FloatArray

    Raises
    ------
    ValueError
        If the file is damaged, or `save` did not write it.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import floatsim as fs, io
    >>> file = io.BytesIO()
    >>> fs.save(file, fs.convert([0.1], "bf16")); _ = file.seek(0)
    >>> fs.load(file)
    FloatArray([0.1001], BF16)
    """
    reader = _READERS.get(Path(file).suffix.lower()) if isinstance(file, str | Path) else None
    if reader is not None:
        raise ValueError(f"file {file!r} was not written by fs.save; use fs.quantization.{reader}({str(file)!r})")
    try:
        contents = np.load(file, allow_pickle=False)
    except _DAMAGED as error:
        raise ValueError(f"file {file!r} is damaged, or was not written by fs.save: {error}") from error
    names = set(getattr(contents, "files", ()))
    if names != {"codes", "format"}:
        found = f"it contains {', '.join(sorted(names))}" if names else "it is no .npz file"
        raise ValueError(f"file {file!r} was not written by fs.save: {found}")
    with contents:
        try:
            return from_codes(contents["codes"], FloatFormat(**json.loads(str(contents["format"]))))
        except _DAMAGED as error:
            raise ValueError(f"file {file!r} is damaged: {error}") from error


def native(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in the machine's byte order. Only bytes move, no value is read."""
    if array.dtype.isnative:
        return array
    return array.byteswap().view(array.dtype.newbyteorder("="))
