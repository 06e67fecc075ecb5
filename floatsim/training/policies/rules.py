"""The records of a policy, `Op` and `Gemm`, and the protocol of scaling methods.

The protocol of scaling methods: `Gemm(scaling=...)` is a name of `SCALINGS`, or an object with the method of `Scaling`,
`start(seed)`. It returns a `Scaler`, the state of one run, with two methods:

- `matmul(a, b, ...)` returns the product of two matrices. It scales and rounds both operands, adds the products with
  the given accumulation, and undoes the scaling.
- `finish_step()` ends a training step. Histories of amax advance here.

A run can be saved and resumed if its scalers also have `state_dict()` and `load_state_dict(state)`, as modules of
PyTorch have them. `StatelessScaler` has both methods for scalers without a state.

The path of the module, the product ("forward", "input_gradient" or "weight_gradient") and the roles of the operands
("input", "weight" or "gradient") tell the scaler which state belongs to an operand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from floatsim.accumulation import AccumulationLike, as_accumulation, parse
from floatsim.arrays.array.float_array import FloatArray
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.formats import FP32, FloatFormat, FormatLike, as_format
from floatsim.formats._validation import name_hint

__all__ = [
    "SAME", "SCALINGS", "WIDEST", "Gemm", "Op", "Product", "Record", "RecordLike", "Role", "Scaler", "Scaling",
    "ScalingLike", "StatelessScaler", "as_record", "check_product", "checked_accumulation", "checked_format",
    "scaling_parts", "set_fields",
]  # fmt: skip


SAME = "same"
"""The format of an operand as it is given; for a result, the format of the first operand."""
WIDEST = "widest"
"""The format that contains those of all operands: FP32 for FP16 and BF16."""

SCALINGS = (
    "current", "delayed", "te_block", "deepseek", "deepgemm", "mx", "te_mx", "nvfp4", "row", "tensor", "smoothquant",
    "llm_int8", "nvfp4_row_mxfp8",
)  # fmt: skip
"""The names of scaling methods. `floatsim.training.scaling.methods` defines them.

>>> import floatsim as fs
>>> fs.training.SCALINGS[:3]
('current', 'delayed', 'te_block')
"""

_OF_INTEGERS = ("row", "tensor", "smoothquant", "llm_int8")
"""The scaling methods that take operands of integers."""

Role: TypeAlias = Literal["input", "weight", "gradient"]
Product: TypeAlias = Literal["forward", "input_gradient", "weight_gradient"]


class Scaler(Protocol):
    """The state of a scaling method in one run.

    >>> import floatsim as fs
    >>> scaler: fs.training.Scaler = fs.training.as_scaling("delayed").start(seed=0)
    >>> sorted(scaler.state_dict())
    ['states']
    """

    def matmul(
        self, a: FloatArray, b: FloatArray, *, formats: tuple[FloatFormat, FloatFormat], roles: tuple[Role, Role],
        product: Product, module: str, step: int, accumulate: AccumulationLike | None,
    ) -> FloatArray:  # fmt: skip
        """Return a @ b in FP32, of a (M, K) rounded to formats[0] and b (K, N) rounded to formats[1], both scaled.

        `roles` name the tensors behind a and b, transposed or not. `module` is the path of the layer, `step` the number
        of the training step from 0.
        """

    def finish_step(self) -> None:
        """End a training step: histories of amax advance."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as numbers, texts, lists and dicts."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the state that `state_dict` returned."""


class StatelessScaler:
    """The methods of a scaler that keeps nothing from one product to the next."""

    def finish_step(self) -> None:
        """Do nothing: there is no history."""

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise a ValueError for a state that is not empty."""
        if state:
            raise ValueError(f"state: {type(self).__name__} has no state, but the saved one has {', '.join(state)}")


@runtime_checkable
class Scaling(Protocol):
    """A scaling method, immutable.

    >>> import floatsim as fs
    >>> scaling: fs.training.Scaling = fs.training.as_scaling("current")
    >>> scaling
    CurrentScaling(epsilon=0.0, power_of_two=False)
    """

    def start(self, seed: int | RandomGenerator) -> Scaler:
        """Return the state of a new run. `seed` is for random signs and stochastic rounding."""


ScalingLike: TypeAlias = "str | Scaling"


def check_product(roles: tuple[str, str], product: str) -> None:
    """Raise a ValueError unless the roles of the operands and the product have the names of the protocol."""
    if product not in get_args(Product):
        raise ValueError(f"product={product!r} is not known; {name_hint(product, get_args(Product))}")
    if len(roles) != 2 or any(role not in get_args(Role) for role in roles):
        raise ValueError(f"roles={roles!r} must be two of {', '.join(get_args(Role))}")


# -- records -----------------------------------------------------------------------------------------------------------


def checked_format(fmt: FormatLike, argument: str, *words: str) -> FloatFormat | str:
    """Return a format of arithmetic, or one of the words "same" and "widest"."""
    if isinstance(fmt, str) and fmt.strip().lower() in words:
        return fmt.strip().lower()
    try:
        found = as_format(fmt)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from None
    if found.is_scale:
        raise TypeError(f"{argument}: {found.name} is a scale format, which has no arithmetic")
    return found


def checked_accumulation(accumulate: AccumulationLike, argument: str) -> AccumulationLike:
    """Return an accumulation after a check. A text stays a text, because it may contain "same"."""
    try:
        if isinstance(accumulate, str):
            parse(accumulate, FP32)
            return accumulate
        return as_accumulation(accumulate)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {error}") from None


def set_fields(record: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass(frozen=True)
class Op:
    """The formats of an operation.

    Parameters
    ----------
    compute : format
        The operands are rounded to it. "same": they stay as given. "widest": the format that contains those of all
        operands.
    result : format, optional
        The format of the result. Default: the policy's `activations`, else `compute`. "same" is the format of the first
        operand as given.
    inside : format, optional
        The format of every intermediate. Default: `compute`; in matrix products that of the accumulator.
    accumulate : description, optional
        The accumulation of every sum. Default: the policy's. In a text, "same" stands for the format of the
        intermediates.

    Raises
    ------
    TypeError, ValueError
        For unknown formats and accumulations. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.Op("fp32", result="bf16")
    Op(FP32, result=BF16)
    """

    compute: FormatLike
    result: FormatLike | None = None
    inside: FormatLike | None = None
    accumulate: AccumulationLike | None = None

    def __post_init__(self) -> None:
        result, inside = self.result, self.inside
        set_fields(
            self,
            compute=checked_format(self.compute, "compute", SAME, WIDEST),
            result=None if result is None else checked_format(result, "result", SAME, WIDEST),
            inside=None if inside is None else checked_format(inside, "inside"),
            accumulate=None if self.accumulate is None else checked_accumulation(self.accumulate, "accumulate"),
        )

    def __repr__(self) -> str:
        return _text(self, self.compute, "result inside accumulate")


@dataclass(frozen=True)
class Gemm:
    """The formats of a matrix product, forward and backward.

    Parameters
    ----------
    format : format
        The format of the operands in the forward product, and of the kept operand in the backward products. An integer
        format, such as "int8", needs one of the scaling methods "row", "tensor", "smoothquant" and "llm_int8". It is
        that of the forward product; the operands of the backward products are in FP32, unless `backward` is given.
    backward : format, optional
        The format of the gradient operand in the backward products. Default: `format`.
    accumulate : description, optional
        The accumulation of the forward product, such as "fp32" or "blocked(hopper, 128, fp32)". Default: the policy's.
        The bias is added in the accumulator's format.
    scaling : str or Scaling, optional
        How the operands are scaled: a name of `fs.training.SCALINGS`, or an object with its method. Default: not at
        all.
    result : format, optional
        The format of the result. Default: the policy's `activations`, else that of operations without a rule.
    weight : format, optional
        The format of the second operand, the weights. Default: `format`.
    backward_accumulate : description, optional
        The accumulation of the backward products. Default: `accumulate`.

    Raises
    ------
    TypeError, ValueError
        For unknown formats, accumulations and scaling methods. The message has the nearest match.

    Examples
    --------
    >>> import floatsim as fs
    >>> fs.training.Gemm("e4m3", backward="e5m2", accumulate="blocked(hopper, 128, fp32)", scaling="delayed")
    Gemm(E4M3, backward=E5M2, accumulate=blocked(hopper, 128, fp32), scaling=delayed)
    """

    format: FormatLike
    backward: FormatLike | None = None
    accumulate: AccumulationLike | None = None
    scaling: ScalingLike | None = None
    result: FormatLike | None = None
    weight: FormatLike | None = None
    backward_accumulate: AccumulationLike | None = None

    def __post_init__(self) -> None:
        self._settle_integers()
        set_fields(self, format=checked_format(self.format, "format", SAME, WIDEST), scaling=_scaling(self.scaling))
        for name in ("backward", "weight"):
            if (given := getattr(self, name)) is not None:
                set_fields(self, **{name: checked_format(given, name)})
        if self.result is not None:
            set_fields(self, result=checked_format(self.result, "result", SAME, WIDEST))
        for name in ("accumulate", "backward_accumulate"):
            if (given := getattr(self, name)) is not None:
                set_fields(self, **{name: checked_accumulation(given, name)})
        if self.scaling is not None and not isinstance(self.format, FloatFormat):
            raise ValueError(f"scaling={self.scaling!r} needs a format of the operands, not {self.format!r}")

    def _settle_integers(self) -> None:
        """Move integer formats of the operands into the text of the scaling method."""
        formats = [_integer(each) for each in (self.format, self.weight)]
        if formats == [None, None]:
            return
        name = scaling_parts(self.scaling.lower().replace("-", "_"))[0] if isinstance(self.scaling, str) else ""
        if name not in _OF_INTEGERS:
            raise ValueError(
                f"format={self.format!r}, weight={self.weight!r}: integer operands need scaling= one of "
                f"{', '.join(_OF_INTEGERS)}, not {self.scaling!r}"
            )
        if formats[0] is None:
            raise ValueError(f"format={self.format!r} must be an integer format beside {self.weight!r}")
        named = ", ".join(each for each in formats if each is not None)
        set_fields(self, scaling=f"{name}({named})", format=FP32, weight=None)

    def __repr__(self) -> str:
        return _text(self, self.format, "backward weight accumulate backward_accumulate scaling result")


def _integer(fmt: Any) -> str | None:
    """Return the name of an integer format in lower case; None for what is none."""
    if isinstance(fmt, str):
        name = fmt.strip().lower()
        return name if re.fullmatch("u?int[2-8]|ternary", name) else None
    return fmt.name.lower() if type(fmt).__name__ == "IntegerFormat" else None


def scaling_parts(scaling: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a scaling method, and the formats in the parentheses after it.

    >>> scaling_parts("row(int8, int4)")
    ('row', {'format': 'int8', 'weight_format': 'int4'})
    """
    name, _, rest = scaling.strip().rstrip(")").partition("(")
    formats = [each.strip() for each in rest.split(",") if each.strip()]
    return name.strip(), dict(zip(("format", "weight_format"), formats, strict=False))


def _scaling(scaling: ScalingLike | None) -> ScalingLike | None:
    """Return the name of a scaling method in lower case, or the method."""
    if scaling is None or (isinstance(scaling, Scaling) and not isinstance(scaling, str)):
        return scaling
    if not isinstance(scaling, str):
        raise TypeError(f"scaling must be one of {', '.join(SCALINGS)}, or have a method start, not {scaling!r}")
    text = scaling.strip().lower().replace("-", "_")
    name, formats = scaling_parts(text)
    if name not in SCALINGS:
        raise ValueError(f"scaling={scaling!r} is not known; {name_hint(name, SCALINGS)}")
    if formats and name not in _OF_INTEGERS:
        raise ValueError(f"scaling={scaling!r}: {', '.join(_OF_INTEGERS)} take formats in parentheses, not {name}")
    return text


def _text(record: Any, first: Any, names: str) -> str:
    given = [f"{name}={getattr(record, name)}" for name in names.split() if getattr(record, name) is not None]
    return f"{type(record).__name__}({', '.join([f'{first}', *given])})"


Record: TypeAlias = Op | Gemm
RecordLike: TypeAlias = "Op | Gemm | FormatLike"


def as_record(value: RecordLike, argument: str) -> Record:
    """Return an `Op` or `Gemm`. A format stands for an `Op`."""
    if isinstance(value, Op | Gemm):
        return value
    try:
        return Op(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{argument}: {str(error).removeprefix('compute: ')}") from None
