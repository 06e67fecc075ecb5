"""Quantization of a whole model: one scheme or rules by name, and a report for each tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from floatsim._lazy import plot_function
from floatsim.analysis.conversion_losses import FLUSHED, OVERFLOWED
from floatsim.analysis.tables import data_frame, fits, html_table, text_table
from floatsim.arrays.array.conversion import read_floats
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.array.interop import as_numpy, is_tensor, torch_tensor
from floatsim.formats import FloatFormat
from floatsim.formats._validation import name_hint, nearest_name, with_keyword_hints
from floatsim.quantization.blocks import quantize_blocks
from floatsim.quantization.gguf_file import GgufTensor
from floatsim.quantization.gguf_quantizers import QUANTIZED_TYPES, to_gguf
from floatsim.quantization.gguf_types import GGUF_TYPES, GgufType, from_gguf
from floatsim.quantization.integer import INT4, INT8
from floatsim.quantization.quantized import Quantized
from floatsim.quantization.scheme import SCHEMES, Scheme, SchemeLike, as_scheme

__all__ = ["ModelSchemeLike", "NamedScheme", "QuantizedModel", "TensorReport", "as_model_scheme", "quantize_model"]

Array: TypeAlias = NDArray[Any]
ModelSchemeLike: TypeAlias = "SchemeLike | GgufType"

_PIECE = 1 << 22  # elements; differences of larger tensors are summed piece by piece, to bound the memory

_SEARCHES = {
    "awq": "AWQ searches scales of columns with activations; its format is "
    "fs.quantization.Scheme('uint4', block=128, scale_format='fp16', rule='asymmetric')",
    "smoothquant": "SmoothQuant moves scales from activations to weights; its format of weights is 'w8a8'",
    "signround": "SignRound trains the rounding with activations: fs.quantization.sign_round, a layer at a time; "
    "its format is fs.quantization.Scheme('int4', block=128)",
}
"""Names of methods that need activations, with the format in which they store weights."""

_WEIGHTS_OF = {
    "w8a8": Scheme(INT8, "row"), "w8a16": Scheme(INT8, "row"), "w4a16": Scheme(INT4, 128), "w4a8": Scheme(INT4, 128),
}  # fmt: skip
"""Names for weights and activations together: here the weights (compressed-tensors; integers with absmax scales)."""


class NamedScheme(NamedTuple):
    """A scheme or a type of GGUF files, with its text for tables."""

    text: str
    of: Scheme | GgufType

    @property
    def casts(self) -> bool:
        """Whether it is a format without scales: one of more than 8 bits."""
        return isinstance(self.of, Scheme) and isinstance(self.of.format, FloatFormat) and self.of.format.bits > 8

    def refusal(self, shape: tuple[int, ...]) -> str | None:
        """Return why it cannot act on a tensor of this shape, and what can; None if it can."""
        if isinstance(self.of, Scheme):
            if shape or self.of.block == "tensor":
                return None
            return f"{self.text} has blocks, and a number has none; a scheme with block='tensor' can act on it"
        width = shape[-1] if shape else 1
        if shape and width % self.of.size == 0:
            return None
        able = [name.lower() for name in QUANTIZED_TYPES if shape and width % GGUF_TYPES[name].size == 0]
        rest = (
            "the names of fs.quantization.SCHEMES can, whose last block of a row may be short; skip= leaves it as it is"
        )
        listed = f"of the GGUF types {', '.join(able)} can; " if able else ""
        has = f"a row of {self.text} has whole blocks of {self.of.size} elements, and this one has {width}"
        return f"{has}: {listed}{rest}"

    def quantized(self, x: Any) -> tuple[Quantized, int]:
        """Return the quantized tensor and its size in bits."""
        if isinstance(self.of, Scheme):
            made = quantize_blocks(x, self.of, scale=1.0) if self.casts else quantize_blocks(x, self.of)
            return made, made.codes.size * made.format.bits if self.casts else made.nbits
        blocks = to_gguf(x, self.of)
        return from_gguf(blocks, self.of), 8 * blocks.size


def as_model_scheme(x: ModelSchemeLike, argument: str = "scheme") -> NamedScheme:
    """Return the scheme or the type of GGUF files that `x` is or names.

    Parameters
    ----------
    x : Scheme, GgufType, format or str
        As in `quantize_model`.
    argument : str
        The name of the argument, for messages.

    Returns
    -------
    NamedScheme

    Raises
    ------
    TypeError, ValueError
        For unknown names, with the nearest one; for types of GGUF files that are only read; and for names of searches
        that need activations, with their format.

    Examples
    --------
    >>> as_model_scheme("Q4_K").of.size, as_model_scheme("w8a8").of.format.name
    (256, 'INT8')
    """
    if isinstance(x, str):
        name = x.strip().lower().replace("-", "_")
        if name in _WEIGHTS_OF:
            return NamedScheme(name, _WEIGHTS_OF[name])
        if name in _SEARCHES:
            raise ValueError(f"{argument}={x!r}: {_SEARCHES[name]}")
        if name.upper() in GGUF_TYPES and name not in SCHEMES:
            x = GGUF_TYPES[name.upper()]
    if isinstance(x, GgufType):
        if x.name not in QUANTIZED_TYPES:
            hint = name_hint(x.name, list(QUANTIZED_TYPES))
            raise ValueError(f"{argument}: the GGUF type {x.name} is only read; {hint}")
        return NamedScheme(x.name.lower(), x)
    try:
        found = as_scheme(x)
    except (TypeError, ValueError) as error:
        near = nearest_name(str(x).lower(), [*(each.lower() for each in QUANTIZED_TYPES), *_WEIGHTS_OF, *SCHEMES])
        types = ", ".join(each.lower() for each in QUANTIZED_TYPES)
        also = f" (also the GGUF types {types}, and {', '.join(_WEIGHTS_OF)})"
        first = f"did you mean {near!r}? " if near is not None and "did you mean" not in str(error) else ""
        raise type(error)(f"{argument}: {first}{error}{also}") from None
    block = found.block if isinstance(found.block, str) else "x".join("*" if n is None else str(n) for n in found.block)
    text = x.strip().lower() if isinstance(x, str) else f"{found.format.name.lower()} {block}"
    return NamedScheme(text, found)


@dataclass(frozen=True)
class TensorReport:
    """What the quantization of one tensor cost.

    Attributes
    ----------
    name : str
    shape : tuple of int
    source : str
        The format of the tensor before: a format, a type of GGUF files, or an integer dtype.
    scheme : str
        How it was quantized; "" if it was kept.
    bits : float
        The bits of one element, its share of scales, zero points and offsets included.
    error : float
        The Euclidean norm of the difference, relative to that of the tensor. NaN for kept tensors.
    sqnr : float
        The ratio of signal to quantization noise in decibels, -20 log10(error).
    clipped, flushed : float
        The shares of the finite non-zero elements beyond the largest number of their block, and of those that became 0.
    kept : str
        Why the tensor was kept as it is; "" if it was quantized.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim.quantization import quantize_model
    >>> row = quantize_model({"w": np.eye(4, dtype=np.float32)}, "int8").rows[0]
    >>> row.scheme, row.bits, row.error
    ('int8', 10.0, 0.0)
    """

    name: str
    shape: tuple[int, ...]
    source: str
    scheme: str
    bits: float
    error: float = math.nan
    clipped: float = math.nan
    flushed: float = math.nan
    kept: str = ""

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def sqnr(self) -> float:
        """The ratio of signal to quantization noise in decibels."""
        return math.inf if self.error == 0 else -20 * math.log10(self.error)

    def cells(self) -> tuple[str, ...]:
        """Return the texts of a row of the table."""
        shape = "x".join(map(str, self.shape)) or "number"
        scheme = self.scheme or f"kept: {self.kept}"
        if self.kept:
            return (self.name, shape, self.source, scheme, f"{self.bits:.3f}", *"----")
        numbers = (f"{self.error:.2e}", f"{self.sqnr:.1f}", _share(self.clipped), _share(self.flushed))
        return (self.name, shape, self.source, scheme, f"{self.bits:.3f}", *numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as numbers and texts. A number that is not known is None."""
        found = {**asdict(self), "shape": list(self.shape), "sqnr": self.sqnr}
        return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in found.items()}


def _share(x: float) -> str:
    return "-" if math.isnan(x) else "0" if x == 0 else f"{100 * x:.2g} %"


_HEAD = ("tensor", "shape", "from", "scheme", "bits", "error", "SQNR dB", "clipped", "flushed")


class QuantizedModel(Mapping[str, Any]):
    """The tensors of a quantized model by name, and the report. Prints as a table, also in a notebook.

    Parameters
    ----------
    tensors : dict of str to Quantized or tensor
        The quantized tensors, and those that were kept, as they were given.
    rows : list of TensorReport
        One for each tensor.
    originals : dict of str to tensor
        The tensors before.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim.quantization import quantize_model
    >>> state = {"w": np.ones((2, 32), np.float32), "bias": np.zeros(2, np.float32)}
    >>> model = quantize_model(state, "mxfp8")
    >>> model["w"].scales.shape, model["bias"].dtype
    ((2, 1), dtype('float32'))
    """

    def __init__(self, tensors: dict[str, Any], rows: list[TensorReport], originals: Mapping[str, Any]) -> None:
        self._tensors, self.rows, self._originals = tensors, rows, originals

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def quantized(self) -> list[TensorReport]:
        """The rows of the tensors that were quantized."""
        return [row for row in self.rows if not row.kept]

    @property
    def bits(self) -> float:
        """The bits of one element, over all tensors, the kept ones included."""
        return sum(row.bits * row.size for row in self.rows) / max(sum(row.size for row in self.rows), 1)

    @property
    def nbytes(self) -> int:
        """The size of all tensors in bytes, rounded up."""
        return math.ceil(sum(row.bits * row.size for row in self.rows) / 8)

    def worst(self, count: int = 5) -> list[TensorReport]:
        """Return the quantized tensors with the largest errors, the largest first.

        Parameters
        ----------
        count : int
            How many.

        Examples
        --------
        >>> import numpy as np
        >>> from floatsim.quantization import quantize_model
        >>> state = {"a": np.float32([[1, 2]]), "b": np.float32([[1, 0.3]])}
        >>> [row.name for row in quantize_model(state, "int2").worst(1)]
        ['a']
        """
        return sorted(self.quantized, key=lambda row: -row.error)[:count]

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers that codes and scales stand for: a state dict for the model itself.

        Returns
        -------
        dict of str to tensor
            Quantized tensors are dequantized and rounded to their former format: torch tensors of the same dtype and
            device, otherwise NumPy arrays. Kept tensors are those that were given; tensors of a GGUF file are arrays.

        Examples
        --------
        >>> import numpy as np
        >>> from floatsim.quantization import quantize_model
        >>> quantize_model({"w": np.float32([[3.0, 1.1]])}, "int2", skip=()).state_dict()["w"]
        array([[3., 0.]], dtype=float32)
        """
        return {name: _in_kind(each, self._originals[name]) for name, each in self._tensors.items()}

    def _cells(self) -> list[tuple[str, ...]]:
        return [_HEAD, *(row.cells() for row in self.rows)]

    def _sum(self) -> str:
        kept = len(self.rows) - len(self.quantized)
        return (
            f"{len(self.quantized)} tensors quantized, {kept} kept; {self.bits:.3f} bits per element, "
            f"{self.nbytes / 1e6:.3g} MB"
        )

    def __str__(self) -> str:
        return f"{text_table(self._cells(), 4)}\n{self._sum()}"

    def __repr__(self) -> str:
        return f"QuantizedModel({self._sum()})"

    def _repr_html_(self) -> str:
        return html_table(self._cells(), [self._sum()])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, texts and numbers, for JSON."""
        return {"tensors": [row.to_dict() for row in self.rows], "bits": self.bits, "nbytes": self.nbytes}

    def to_pandas(self) -> Any:
        """Return the rows as a DataFrame. Raise an ImportError if pandas is not installed."""
        columns = [*(each.name for each in fields(TensorReport)), "sqnr"]
        return data_frame([row.to_dict() for row in self.rows], columns)

    def plot(self, ax: Any = None) -> Any:
        """Draw the relative error of each quantized tensor, with bits and losses beside it. Return the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into. Default: a new figure.

        Raises
        ------
        ValueError
            If no tensor was quantized.
        """
        rows = self.quantized
        if not rows:
            raise ValueError("no tensor was quantized; fs.quantization.quantize_model says why for each")
        notes = {row.name: ", ".join([f"{row.bits:.3g} bits", *_losses(row)]) for row in rows}
        return plot_function("layers", "layer_errors")(
            {row.name: {row.scheme: row.error} for row in rows}, notes=notes, ax=ax, title="Error of each tensor"
        )


def _losses(row: TensorReport) -> Iterator[str]:
    """Yield the shares of lost elements as texts."""
    for what in ("clipped", "flushed"):
        if (share := getattr(row, what)) > 0:
            yield f"{100 * share:.2g} % {what}"


def _in_kind(x: Any, original: Any) -> Any:
    """Return a dequantized tensor in the kind and the format of the original."""
    if not isinstance(x, Quantized):
        return x.values if isinstance(x, GgufTensor) else x
    if isinstance(original, GgufTensor):
        return x.dequantize().codes.view(np.float32)
    _, fmt, _ = read_floats(original.detach() if is_tensor(original) else original, "tensor")
    numbers = x.dequantize(fmt)
    if isinstance(original, FloatArray) or fmt.dtype is None:
        return numbers
    array = np.asarray(numbers.codes).view(fmt.dtype)
    if is_tensor(original):
        return torch_tensor(array).to(original.device)
    return array


def _patterns(given: Any, argument: str) -> list[str]:
    """Return patterns as a list."""
    listed = [given] if isinstance(given, str) else list(given)
    for each in listed:
        if not isinstance(each, str) or not each.strip():
            raise TypeError(f"{argument} must be names or patterns of tensors, not {each!r}")
    return listed


def _check_matches(patterns: Iterable[str], names: Sequence[str], argument: str) -> None:
    """Raise a ValueError for a pattern that fits no tensor, with the nearest name, or some of the names."""
    for pattern in patterns:
        if not any(fits(pattern, [name]) for name in names):
            near = nearest_name(pattern, names)
            some = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
            hint = f"did you mean {near!r}?" if near else f"the tensors are {some}"
            raise ValueError(f"{argument}: no tensor fits {pattern!r}; {hint}")


class _Rules:
    """The rules of a call: which scheme a tensor has, or why it is kept."""

    def __init__(self, scheme: Any, skip: Any, names: Sequence[str]) -> None:
        self.skip = _patterns(skip, "skip")
        self.by_name: dict[str, NamedScheme | None] | None = None
        if isinstance(scheme, Mapping):
            patterns = _patterns(scheme, "the keys of scheme")
            if not patterns:
                raise ValueError("scheme has no rule; a rule is {'pattern': 'int8'}, or give one scheme")
            given = ((key, scheme[key], f"scheme[{key!r}]") for key in patterns)
            self.by_name = {key: None if x is None else as_model_scheme(x, what) for key, x, what in given}
            _check_matches(patterns, names, "scheme")
        else:
            self.one = as_model_scheme(scheme)
        _check_matches(self.skip, names, "skip")

    def decide(self, name: str, shape: tuple[int, ...]) -> NamedScheme | str:
        """Return the scheme of a tensor of floats, or why it is kept."""
        if (pattern := next((each for each in self.skip if fits(each, [name])), None)) is not None:
            return f"skip {pattern!r}"
        if self.by_name is None:
            return self.one if len(shape) > 1 else "no matrix"
        for pattern, found in self.by_name.items():
            if fits(pattern, [name]):
                return f"the rule {pattern!r}" if found is None else found
        return "no rule"


class _Tensor(NamedTuple):
    """A tensor of a state dict before its quantization. `numbers` reads it; None for integers."""

    shape: tuple[int, ...]
    source: str
    bits: float
    numbers: Callable[[], FloatArray] | None


def _tensor(x: Any, name: str) -> _Tensor:
    """Return the shape and the format of a tensor. Numbers of quantized ones are computed when they are used."""
    if isinstance(x, GgufTensor):
        integers = x.type.startswith("I") and x.type not in GGUF_TYPES
        return _Tensor(x.shape, x.type, x.nbits / max(math.prod(x.shape), 1), None if integers else x.dequantize)
    if isinstance(x, Quantized):
        return _Tensor(x.shape, x.format.name, x.nbits / max(x.codes.size, 1), x.dequantize)
    tensor = x.detach() if is_tensor(x) else x
    array = tensor if isinstance(tensor, np.ndarray | FloatArray) else as_numpy(tensor)
    if isinstance(array, np.ndarray) and array.dtype.kind in "iub":
        return _Tensor(array.shape, array.dtype.name, 8.0 * array.dtype.itemsize, None)
    try:
        codes, fmt, _ = read_floats(tensor if array is None else array, name)
    except (TypeError, ValueError) as error:
        raise type(error)(f"state_dict[{name!r}]: {error}") from None
    return _Tensor(codes.shape, fmt.name, float(fmt.bits), lambda: FloatArray(codes, fmt))


def _relative_error(before: FloatArray, after: Quantized) -> float:
    """Return the norm of the difference relative to that of the tensor, in FP64. Zero if both are equal."""
    difference = signal = 0.0
    made = after.dequantize().reshape(-1)
    given = before.reshape(-1)
    for start in range(0, given.size, _PIECE):
        part = given[start : start + _PIECE].values
        difference += float(np.sum((made[start : start + _PIECE].values - part) ** 2))
        signal += float(np.sum(part**2))
    return math.sqrt(difference / signal) if signal else math.inf if difference else 0.0


def _row(name: str, x: FloatArray, source: str, rule: NamedScheme) -> tuple[Quantized, TensorReport]:
    """Return a quantized tensor and its report."""
    try:
        made, bits = rule.quantized(x)
    except ValueError as error:
        raise ValueError(f"state_dict[{name!r}]: {error}") from None
    kinds = made.classify_losses(x)
    clipped, flushed = (np.count_nonzero(kinds == kind) / max(kinds.size, 1) for kind in (OVERFLOWED, FLUSHED))
    report = TensorReport(
        name, x.shape, source, rule.text, bits / x.size, _relative_error(x, made), float(clipped), float(flushed)
    )
    return made, report


@with_keyword_hints
def quantize_model(
    state_dict: Mapping[str, Any],
    scheme: ModelSchemeLike | Mapping[str, ModelSchemeLike | None],
    *,
    skip: str | Iterable[str] = (),
) -> QuantizedModel:
    """Quantize the weights of a model, and report what it costs for each tensor.

    Parameters
    ----------
    state_dict : mapping of str to tensor
        Names and tensors: the `state_dict()` of a PyTorch model, a dict of NumPy arrays or FloatArrays, or a
        `GgufFile`. Quantized tensors of a file are dequantized first. Integers are kept.
    scheme : str, Scheme, GgufType, format or mapping
        One scheme for all tensors with at least two axes: a name or a Scheme as in `fs.quantize_blocks`; a type of GGUF
        files, such as "q4_k"; "w8a8", "w8a16", "w4a8" or "w4a16", for the weights of these names (INT8 by rows, INT4 in
        blocks of 128). A floating-point format of more than 8 bits is a cast, without scales.

        Or rules, a mapping of patterns to schemes: "blocks.*.up.weight", with "*" and "?", and "|" between
        alternatives. The first pattern that fits a name holds, for tensors of any shape. None keeps the tensor, as does
        a name that no pattern fits.
    skip : str or iterable of str
        Patterns of tensors that are kept as they are.

    Returns
    -------
    QuantizedModel
        A mapping of names to `Quantized` and kept tensors. It prints as a table: scheme, bits per weight, error, SQNR,
        shares of clipped and flushed elements, and why a tensor was kept. `plot()` draws it, `state_dict()` returns the
        dequantized tensors.

    Raises
    ------
    TypeError
        If the state dict is no mapping of names to tensors.
    ValueError
        For unknown schemes, with the nearest one; for a pattern that fits no tensor, with the nearest name; for a
        scheme that cannot act on the shape of a tensor, with those that can; for NaN and infinity, as in
        `fs.quantize_blocks`.

    Examples
    --------
    >>> import numpy as np
    >>> from floatsim.quantization import quantize_model
    >>> w = np.random.default_rng(0).normal(size=(2, 64, 256)).astype(np.float32)
    >>> state = {"up.weight": w[0], "up.bias": w[1, 0], "head.weight": w[1]}
    >>> print(quantize_model(state, {"head.*": "int8", "*.weight": "q4_k"}))
    tensor       shape   from  scheme           bits     error  SQNR dB  clipped  flushed
    up.weight    64x256  FP32  q4_k            4.500  7.10e-02     23.0    4.1 %  0.031 %
    up.bias      256     FP32  kept: no rule  32.000         -        -        -        -
    head.weight  64x256  FP32  int8            8.002  1.03e-02     39.8        0    1.2 %
    2 tensors quantized, 1 kept; 6.451 bits per element, 0.0266 MB
    """
    given: Any = state_dict
    if not isinstance(given, Mapping):
        hint = "; a model has it as model.state_dict()" if hasattr(given, "state_dict") else ""
        raise TypeError(f"state_dict must map names to tensors, not {type(given).__name__}{hint}")
    names: list[Any] = list(state_dict)
    wrong: list[Any] = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"the names of state_dict must be texts, not {wrong[0]!r}")
    if not names:
        raise ValueError("state_dict has no tensor")
    rules = _Rules(scheme, skip, names)
    tensors: dict[str, Any] = {}
    rows = []
    for name in names:
        x = _tensor(state_dict[name], name)
        size = math.prod(x.shape)
        chosen = "integers" if x.numbers is None else "no elements" if not size else rules.decide(name, x.shape)
        if x.numbers is None or isinstance(chosen, str):
            tensors[name] = state_dict[name]
            rows.append(TensorReport(name, x.shape, x.source, "", x.bits, kept=str(chosen)))
        elif (why := chosen.refusal(x.shape)) is not None:
            raise ValueError(f"state_dict[{name!r}] {x.shape}: {why}")
        else:
            tensors[name], row = _row(name, x.numbers(), x.source, chosen)
            rows.append(row)
    return QuantizedModel(tensors, rows, dict(state_dict))
