"""floatsim inside your own `@njit` code: `fs.quantize`, `fs.add` and the other scalar operations, compiled.

A number in compiled code is a float64 or float32, its *carrier*. A function has the same result as outside with a NumPy
scalar of that dtype: operands are read exactly, and the result is rounded once, to `format=`. The result is a
value in the carrier (the wider one of two), because compiled code has no narrower floats. `encode` returns codes.

>>> import floatsim as fs, numpy as np
>>> from numba import njit
>>> @njit
... def dot(x, y):
...     total = 0.0
...     for i in range(x.size):
...         total = fs.fma(x[i], y[i], total, format=fs.FP16, rounding="toward_zero")
...     return total
>>> dot(np.full(3000, 1.0), np.full(3000, 1.0))
2048.0

- A format is a name or `FloatFormat` that the compiler sees (a literal, a global), or at run time `format_params(...)`,
  so that one compiled function serves all formats.
- `rounding=`, `overflow=`, `tininess=`: literal strings, or members of the enums, at run time too. `daz=`, `ftz=`:
  bools. `random_bits=`, `return_flags=`: literals. `format_params` takes all but `return_flags`, and they cannot be
  given next to it.
- Stochastic roundings take `seed=` and `offset=`, any integers: offset i draws what element i of an array would. A
  generator such as `fs.Philox(42)` is refused.
- The context does not reach compiled code, and nothing is recorded there.
- The mathematical functions, `fs.exp` and others, compute in float64 if operands have at most 24 significant bits and
  the format has at most 30. The few results that stay open, and all others, call Python and take about a millisecond.

Numba finds this module by its entry point `numba_extensions`. User code need not import it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import objmode
from numba.core import types as numba_types
from numba.core.cgutils import unpack_tuple
from numba.core.errors import TypingError
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import NativeValue, lower_builtin, models, overload, register_model, typeof_impl, unbox
from numba.np.numpy_support import from_dtype

import floatsim
from floatsim import reference
from floatsim.arrays.call.options import RoundingOptions, resolve
from floatsim.arrays.call.random_sources import RandomGenerator
from floatsim.emulator.elementwise.operations import OPERATIONS, Compiled
from floatsim.formats import FP32, FP64, FloatFormat, FormatLike, Specials, as_format
from floatsim.formats._validation import as_flag, as_index, name_hint, with_keyword_hints
from floatsim.formats.rounding import (
    FLAGS,
    OverflowLike,
    Rounding,
    RoundingAttributes,
    RoundingLike,
    TininessLike,
    as_member,
)
from floatsim.formats.value_sets import contains
from floatsim.reference import functions

__all__ = ["FormatParams", "draw", "format_params", "init"]

types: Any = numba_types

_ROUNDING_DEFAULTS: dict[str, Any] = {
    name: default for name, default in vars(RoundingAttributes()).items() if default is not None
}
"""The rounding attributes that compiled code takes, with their defaults: all but the generator of random bits."""

# -- formats as data at run time ---------------------------------------------------------------------------------------


class FormatParams(NamedTuple):
    """The parameters of a format and of a rounding as integers, as the kernels read them: made by `format_params`.

    >>> import floatsim as fs
    >>> isinstance(fs.njit.format_params("bf16"), fs.njit.FormatParams)
    True
    """

    precision: int
    emin: int
    max_code: int
    infinity: int
    nan: int
    sign_shift: int
    quiet_bit: int
    signed_zero: int
    is_scale: int
    rounding: int
    overflow: int
    daz: int
    ftz: int
    tiny_before: int
    random_bits: int


@with_keyword_hints
def format_params(
    format: FormatLike, *, rounding: RoundingLike | None = None, overflow: OverflowLike | None = None,
    daz: bool | None = None, ftz: bool | None = None, tininess: TininessLike | None = None,
    random_bits: int | None = None,
) -> FormatParams:  # fmt: skip
    """Return a format and rounding options as one argument of compiled functions, which then serve all formats.

    Parameters
    ----------
    format : format
        Anything `as_format` takes.
    rounding : Rounding or str, optional
        "ties_to_even" ("RNE"), "ties_to_away" ("RNA"), "toward_zero" ("RTZ"), "toward_positive" ("RTP"),
        "toward_negative" ("RTN"), "to_odd" ("RTO"), "stochastic" ("SR"). Default of this and of the others: the
        context's.
    overflow : Overflow or str, optional
        "infinity", "saturate_finite" or "saturate_propagate".
    daz, ftz : bool, optional
        Read subnormal operands as zeros; return zero for tiny results.
    tininess : Tininess or str, optional
        "after" or "before" rounding.
    random_bits : int, optional
        The random bits of a stochastic rounding, 1 to 64.

    Returns
    -------
    FormatParams
        A named tuple of integers, to be passed where a format is expected in compiled code.

    Examples
    --------
    >>> import floatsim as fs
    >>> from numba import njit
    >>> @njit
    ... def third(format):
    ...     return fs.divide(1.0, 3.0, format=format)
    >>> third(fs.njit.format_params("bf16")), third(fs.njit.format_params("e4m3", rounding="toward_positive"))
    (0.333984375, 0.34375)
    """
    options = RoundingOptions(
        rounding=rounding, overflow=overflow, daz=daz, ftz=ftz, tininess=tininess, random_bits=random_bits, seed=0
    )
    named = as_format(format)
    if named.is_scale and named.has_zero:
        raise TypeError(f"format={named.name} has no sign, and compiled code does not round to it; use fs.encode")
    return FormatParams(*_format_words(named), *_rounding_words(resolve(options).attributes))


def _format_words(fmt: FloatFormat) -> tuple[int, ...]:
    from floatsim.emulator import params

    return tuple(int(word) for word in params.format_params(fmt))


def _rounding_words(attributes: RoundingAttributes) -> tuple[int, ...]:
    from floatsim.emulator.params import rounding_params

    return tuple(int(word) for word in rounding_params(attributes)[: len(_ROUNDING_DEFAULTS)])


@with_keyword_hints
def draw(seed: int, index: int, random_bits: int = 32, site: int = 0) -> int:
    """Return the random integer of the stochastic rounding of element `index`, outside and inside compiled code.

    Parameters
    ----------
    seed, index : int
        0 to 2**64 - 1.
    random_bits : int
        The number of bits, 1 to 64.
    site : int
        The number of the rounding site of one element. Element-wise operations have site 0.

    Returns
    -------
    int
        Below 2**random_bits.

    Raises
    ------
    TypeError, ValueError
        For arguments that are no integers or out of range.

    Examples
    --------
    >>> import floatsim as fs
    >>> [fs.njit.draw(1, i, 8) for i in range(4)]
    [51, 154, 150, 68]
    """
    words = {"seed": seed, "index": index, "site": site}
    seed, index, site = (as_index(word, name, 0, (1 << 64) - 1) for name, word in words.items())
    return reference.draw(seed, index, as_index(random_bits, "random_bits", 1, 64), site)


# -- formats that are constants at compile time ------------------------------------------------------------------------


class FormatType(types.Dummy):  # type: ignore[misc]
    """The Numba type of one FloatFormat. Its values carry no data."""

    def __init__(self, format: FloatFormat) -> None:
        self.fmt = format
        fields = format.exponent_bits, format.trailing_bits, format.specials.value, format.bias
        super().__init__(name=f"FloatFormat{fields}")


register_model(FormatType)(models.OpaqueModel)


@typeof_impl.register(FloatFormat)  # type: ignore[untyped-decorator]
def _typeof_format(fmt: FloatFormat, _context: Any) -> FormatType:
    return FormatType(fmt)


@unbox(FormatType)  # type: ignore[untyped-decorator]
def _unbox_format(_type: Any, _object: Any, c: Any) -> Any:
    return NativeValue(c.context.get_dummy_value())


# -- generators of random bits, which compiled code does not draw from -------------------------------------------------


class GeneratorType(types.Dummy):  # type: ignore[misc]
    """The Numba type of a generator such as `fs.Philox(42)`. It is there for the message of an error."""


register_model(GeneratorType)(models.OpaqueModel)

_NO_GENERATOR = (
    "is an integer in compiled code, which draws from floatsim's own generator; with fs.Philox, fs.Threefry, fs.Lfsr "
    "round whole arrays outside: fs.quantize(x, ..., seed=fs.Philox(42)), or pass the integers of .draws(n) as an array"
)


@typeof_impl.register(RandomGenerator)  # type: ignore[untyped-decorator]
def _typeof_generator(generator: RandomGenerator, _context: Any) -> GeneratorType:
    return GeneratorType(type(generator).__name__)


@unbox(GeneratorType)  # type: ignore[untyped-decorator]
def _unbox_generator(_type: Any, _object: Any, c: Any) -> Any:
    return NativeValue(c.context.get_dummy_value())


def _refuse_generator(*_args: Any, **_keywords: Any) -> Any:
    raise TypingError(f"seed {_NO_GENERATOR}")


for _generator in (floatsim.Philox, floatsim.Threefry, floatsim.Lfsr):
    overload(_generator, strict=False)(_refuse_generator)


# -- calls, checked by the types of their arguments --------------------------------------------------------------------


_APPROXIMATE = {("gelu", "tanh"): "gelu_tanh"}
"""The functions that `approximate=` selects in compiled code."""

_FIRST_FORMAT = ("copysign", "nextafter")
"""The operations whose result has the format of the first operand, whatever that of the second is."""

_CARRIERS = {types.float64: FP64, types.float32: FP32}
_RUN_TIME = object()


def _constant(ty: Any) -> Any:
    """Return the value of an argument that the compiler knows, or _RUN_TIME."""
    if isinstance(ty, types.Literal):
        return ty.literal_value
    if isinstance(ty, types.NoneType):
        return None
    if isinstance(ty, types.Omitted):  # a default of the user's own function
        return ty.value
    return ty.fmt if isinstance(ty, FormatType) else _RUN_TIME


class _Call(NamedTuple):
    """A checked call. A *word* is an integer, or the name of an argument that is an integer at run time."""

    operands: tuple[tuple[str, FloatFormat], ...]
    extra: tuple[int | str, ...]
    format: FloatFormat | str
    """The result's, or the name of the argument that is a FormatParams."""
    carrier: FloatFormat
    rounding: tuple[int | str, ...]
    seed: int | str | None
    offset: int | str
    flags: bool
    result: Any
    """The Numba type of the result without its flags."""
    function: str
    """The name of a mathematical function in floatsim.reference.functions."""


class _Arguments:
    """The types of a call's arguments, and the values that the compiler knows.

    Methods raise TypeError or ValueError with the message for the user.
    """

    def __init__(self, function: Any, given: dict[str, Any]) -> None:
        parameters = inspect.signature(function).parameters
        self.types = given
        self.known = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        self.known |= {name: _constant(ty) for name, ty in given.items()}

    def __getitem__(self, name: str) -> Any:
        """Return the value of an argument, None if it is absent, _RUN_TIME if the compiler does not know it."""
        return self.known.get(name)

    def carrier(self, name: str) -> FloatFormat:
        ty = types.unliteral(self.types[name])
        if ty not in _CARRIERS:
            advice = {types.Integer: f"; write float({name})", types.Array: "; compiled code takes its elements"}
            more = next((text for kind, text in advice.items() if isinstance(ty, kind)), "")
            raise TypeError(f"{name} must be a float64 or float32 number, not {ty}{more}")
        return _CARRIERS[ty]

    def format(self, carriers: list[FloatFormat]) -> FloatFormat | str:
        """The result's format, or the name of the argument that is a FormatParams."""
        name = "format"
        if self[name] is None:
            if len(set(carriers)) > 1 and "format" in self.known:
                raise TypeError("the operands are float64 and float32: name the result's format with format=")
            return carriers[0]
        if self[name] is not _RUN_TIME:
            return as_format(self[name])
        if getattr(self.types[name], "instance_class", None) is not FormatParams:
            raise TypeError(
                f"{name} must be a literal such as 'fp16', a format such as fs.FP16, "
                f"or fs.njit.format_params(...), not {self.types[name]}"
            )
        return name

    def rounding(self) -> tuple[int | str, ...]:
        """Return the words of the rounding parameters, in the order of the fields of RoundingAttributes."""
        words: list[int | str] = []
        for name, default in _ROUNDING_DEFAULTS.items():
            value, kind = self[name], type(default)
            if value is _RUN_TIME:
                self._check_type_of(name, kind)
                words.append(name)
            elif value is None:
                words.append(int(getattr(default, "value", default)))
            elif kind is int:
                words.append(as_index(value, name, 1, 64))
            elif kind is bool:
                words.append(int(as_flag(value, name)))
            else:
                words.append(as_member(kind, value, name).value)
        return tuple(words)

    def _check_type_of(self, name: str, kind: type) -> None:
        ty = self.types[name]
        if kind is bool and not isinstance(ty, types.Boolean):
            raise TypeError(f"{name} must be a bool, not {ty}")
        if kind is int:
            raise TypeError(
                f"{name} must be a literal integer; at run time, use fs.njit.format_params(..., {name}=...)"
            )
        if issubclass(kind, enum.Enum) and not (isinstance(ty, types.EnumMember) and ty.instance_class is kind):
            raise TypeError(f"{name} must be a literal string or a member of fs.{kind.__name__}, not {ty}")

    def integer(self, name: str, low: int = 0, high: int = (1 << 64) - 1) -> int | str | None:
        """Return a word, or None if the argument is absent."""
        value = self[name]
        if value is None:
            return None
        if value is not _RUN_TIME:
            return as_index(value, name, low, high)
        ty = self.types[name]
        if isinstance(ty, GeneratorType):
            raise TypeError(f"{name} {_NO_GENERATOR}")
        if not isinstance(ty, types.Integer):
            raise TypeError(f"{name} must be an integer, not {ty}")
        if name == "codes" and ty.signed:
            raise TypeError(f"codes must be unsigned, not {ty}; write np.uint64(codes)")
        if name == "n" and ty == types.uint64:
            raise TypeError("n must be a signed integer, not uint64; write np.int64(n)")
        return name

    def flag(self, name: str) -> int | str:
        value = self[name]
        if value is _RUN_TIME:
            self._check_type_of(name, bool)
            return name
        return int(as_flag(value, name))

    def function(self, name: str) -> str:
        """Return the function that `approximate=` selects."""
        value = self["approximate"]
        if value in (None, "none"):
            return name
        if value is _RUN_TIME:
            raise TypeError("approximate must be a literal string in compiled code")
        known = ["none", *(text for of, text in _APPROXIMATE if of == name)]
        if (name, value) not in _APPROXIMATE:
            raise ValueError(f"{name}: approximate must be one of {known} in compiled code, not {value!r}")
        return _APPROXIMATE[name, value]

    def integer_type(self) -> Any:
        ty = self.types["dtype"]
        if not isinstance(ty, types.NumberClass | types.DType) or not isinstance(ty.dtype, types.Integer):
            raise TypeError(f"dtype must be an integer dtype such as np.int32, not {ty}")
        return ty.dtype


def _understand(function: Any, names: Sequence[str], operation: Compiled, given: dict[str, Any]) -> _Call:
    """Return the checked call for arguments of these types, or raise a TypeError or ValueError."""
    arguments = _Arguments(function, given)
    if arguments["out"] is not None:
        raise TypeError("out= does not exist in compiled code, where operands and results are numbers")
    operands = tuple((name, arguments.carrier(name)) for name in names)
    carriers = [carrier for _, carrier in operands]
    carrier = carriers[0] if len(set(carriers)) == 1 or operation.entry in _FIRST_FORMAT else FP64
    if operation.entry == "total_order" and len(set(carriers)) > 1:
        raise TypeError("a and b have different formats")
    fmt = arguments.format(carriers)
    if isinstance(fmt, FloatFormat):
        if operation.result == "value" and not contains(carrier, fmt):
            raise TypeError(f"{carrier.name} cannot hold all values of {fmt.name}; use float64")
        if fmt.is_scale and fmt.has_zero and operation.entry != "decode":
            raise TypeError(f"{function.__name__}: compiled code only decodes {fmt.name}, which has no sign")
        if fmt.is_scale and operation.entry not in ("quantize", "encode", "decode"):
            raise TypeError(f"{function.__name__}: {fmt.name} is a scale format, which has no arithmetic")
        rounding = arguments.rounding()
    else:
        for name in _ROUNDING_DEFAULTS:
            if arguments[name] is not None:
                raise TypeError(
                    f"{name} is part of the format parameters; write fs.njit.format_params(..., {name}=...)"
                )
        rounding = ()
    seed = arguments.integer("seed")
    if rounding and operation.rounds and rounding[0] == Rounding.STOCHASTIC.value and seed is None:
        raise ValueError("stochastic rounding needs a seed: pass seed=")
    extra: list[int | str] = []
    for item in operation.extra:
        if item == "dtype":
            lowest, highest = arguments.integer_type().minval, arguments.integer_type().maxval
            extra += [-lowest, highest]
        elif item == "signaling":
            extra.append(arguments.flag(item))
        elif item == "n":
            extra.append(arguments.integer("n", -(1 << 63), (1 << 63) - 1) or 0)
        elif item == "codes":
            extra.append(arguments.integer("codes") or 0)
        else:
            extra.append(item)
    if arguments["return_flags"] is _RUN_TIME:
        raise TypeError("return_flags must be a literal True or False in compiled code")
    flags = as_flag(arguments["return_flags"] or False, "return_flags")
    offset = arguments.integer("offset") or 0
    results = {
        "value": lambda: types.float32 if carrier == FP32 else types.float64,
        "code": lambda: from_dtype(fmt.code_dtype) if isinstance(fmt, FloatFormat) else types.uint64,
        "bool": lambda: types.boolean,
        "int32": lambda: types.int32,
        "uint8": lambda: types.uint8,
        "dtype": arguments.integer_type,
    }
    name = arguments.function(function.__name__)
    return _Call(operands, tuple(extra), fmt, carrier, rounding, seed, offset, flags, results[operation.result](), name)


# -- open results of mathematical functions ----------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _format_of(words: tuple[int, ...]) -> FloatFormat:
    """Return the format of format parameters."""
    fields = dict(zip(FormatParams._fields, words, strict=False))
    trailing = fields["precision"] - 1
    for specials in Specials:
        with contextlib.suppress(ValueError):
            fmt = FloatFormat("", fields["sign_shift"] - trailing, trailing, specials, 1 - fields["emin"])
            if _format_words(fmt) == words:
                return fmt
    raise ValueError(f"no format has the parameters {words}; use fs.njit.format_params")


@functools.lru_cache(maxsize=256)
def _attributes_of(words: tuple[int, ...]) -> RoundingAttributes:
    """Return the rounding attributes of rounding parameters."""
    named = zip(_ROUNDING_DEFAULTS.items(), words, strict=True)
    return RoundingAttributes(**{name: type(x)(word) for (name, x), word in named})


def _reference_result(
    name: str, codes: tuple[int, ...], carriers: tuple[tuple[int, ...], ...], fmt: tuple[int, ...],
    rounding: tuple[int, ...], random: int,
) -> tuple[int, int]:  # fmt: skip
    """Return (code, events) of a function; the formats and the rounding are parameters."""
    attributes = _attributes_of(rounding)
    operands = [
        reference.decode(int(code), _format_of(words), attributes.daz)
        for code, words in zip(codes, carriers, strict=True)
    ]
    return functions.apply(name, tuple(operands), _format_of(fmt), attributes, int(random))


@functools.cache
def _compiled_reference(name: str, count: int) -> Any:
    """Return the compiled function that calls Python for an open result of a function of `count` numbers."""
    from floatsim_kernels.runtime.jit import calls_python

    @calls_python  # type: ignore[untyped-decorator]
    def call(a: Any, fa: Any, b: Any, fb: Any, f: Any, m: Any, random: Any) -> Any:
        with objmode(code="uint64", events="int64"):
            code, events = _reference_result(name, (a, b)[:count], (fa, fb)[:count], f, m, random)
        return code, events

    return call


def _function_entry(name: str) -> Any:
    from floatsim_kernels.functions import njit_entry

    if name in functions.BINARY:
        return njit_entry.of_two(name, _compiled_reference(name, 2))
    return njit_entry.of_one(name, _compiled_reference(name, 1))


# -- Numba's side ------------------------------------------------------------------------------------------------------


def _bound(function: Any, args: tuple[Any, ...], kws: dict[str, Any]) -> dict[str, Any]:
    """Return the types of the arguments by name, checked against the signature of the public function."""
    try:
        arguments = inspect.signature(function).bind(*args, **kws).arguments
    except TypeError as error:
        raise TypeError(f"{function.__name__}: {error}") from None
    keywords = arguments.pop("options", {})
    for name in keywords:
        if name not in RoundingOptions.__annotations__:
            raise TypeError(f"unknown keyword {name!r}; {name_hint(name, RoundingOptions.__annotations__)}")
    return {**arguments, **keywords}


def _register(function: Any, names: Sequence[str], operation: Compiled) -> None:
    """Register one public function with Numba. `names` are those of its float operands."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        prefer_literal = True
        refused: TypingError | None = None

        def generic(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
            # Numba calls again without literals, where every error would have the same text
            if self.refused is not None:
                raise self.refused
            try:
                given = _bound(function, args, kws)
                call = _understand(function, names, operation, given)
            except (TypeError, ValueError) as error:
                self.refused = TypingError(str(error))
                raise self.refused from None
            positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters = inspect.Signature([inspect.Parameter(name, positional) for name in given])
            result = types.Tuple([call.result, types.uint8]) if call.flags else call.result
            return signature(result, *given.values()).replace(pysig=parameters)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        arguments = list(sig.pysig.parameters)
        given = dict(zip(arguments, sig.args, strict=True))
        emit = _Emitter(context, builder, given, dict(zip(arguments, args, strict=True)))
        return emit.call(operation.entry, _understand(function, names, operation, given))

    Template.generic.__qualname__ = f"fs.{function.__name__}"
    infer_global(function)(Template)
    lower_builtin(function, types.VarArg(types.Any))(lower)


_I64 = ir.IntType(64)


class _Emitter:
    """Turns a call into one of a kernel of elementwise/njit_entry.py, whose arguments are all integers."""

    def __init__(self, context: Any, builder: Any, given: dict[str, Any], values: dict[str, Any]) -> None:
        self.context, self.builder, self.types, self.values = context, builder, given, values

    def word(self, word: int | str) -> Any:
        if not isinstance(word, str):
            return ir.Constant(_I64, (word + (1 << 63)) % (1 << 64) - (1 << 63))
        ty = self.types[word]
        base = ty.dtype if isinstance(ty, types.EnumMember) else types.unliteral(ty)
        return self.context.cast(self.builder, self.values[word], base, types.int64)

    def row(self, words: list[Any], dtype: Any = types.int64) -> tuple[Any, Any]:
        """Return a tuple of words, and its type."""
        ty = types.UniTuple(dtype, len(words))
        return self.context.make_tuple(self.builder, ty, words), ty

    def format(self, fmt: FloatFormat) -> tuple[Any, Any]:
        return self.row([self.word(word) for word in _format_words(fmt)])

    def code(self, name: str, carrier: FloatFormat) -> Any:
        bits = self.builder.bitcast(self.values[name], ir.IntType(carrier.bits))
        return self.builder.zext(bits, _I64)

    def draws(self, call: _Call) -> tuple[Any, Any]:
        from floatsim_kernels.elementwise.njit_entry import NEGATIVE, NO_SEED, SEEDED

        state = self.word(int(NO_SEED if call.seed is None else SEEDED))
        for word in (call.seed, call.offset):
            if isinstance(word, str) and types.unliteral(self.types[word]).signed:
                below = self.builder.icmp_signed("<", self.word(word), self.word(0))
                state = self.builder.select(below, self.word(int(NEGATIVE)), state)
        return self.row([state, self.word(call.seed or 0), self.word(call.offset)], types.uint64)

    def call(self, entry: str, call: _Call) -> Any:
        from floatsim_kernels.elementwise import njit_entry

        arguments: list[tuple[Any, Any]] = []
        for name, carrier in call.operands:
            arguments += [(self.code(name, carrier), types.uint64), self.format(carrier)]
        arguments += [(self.word(word), types.int64) for word in call.extra]
        if isinstance(call.format, str):
            words, count = unpack_tuple(self.builder, self.values[call.format]), len(_format_words(FP64))
            fmt, rounding = self.row(words[:count]), self.row(words[count:])
        else:
            fmt, rounding = self.format(call.format), self.row([self.word(word) for word in call.rounding])
        arguments += [fmt, self.format(call.carrier), rounding, self.draws(call), (self.word(call.flags), types.int64)]
        function = types.Dispatcher(
            _function_entry(call.function) if entry == "function" else getattr(njit_entry, entry)
        )
        sig = function.get_call_type(self.context.typing_context, tuple(ty for _, ty in arguments), {})
        implementation = self.context.get_function(function, sig)
        both = implementation(self.builder, [value for value, _ in arguments])
        self.context.add_linking_libs(implementation.libs)
        result = self.result(self.builder.extract_value(both, 0), call)
        if not call.flags:
            return result
        flags = self.builder.and_(self.builder.extract_value(both, 1), self.word(FLAGS))
        kind = types.Tuple([call.result, types.uint8])
        return self.context.make_tuple(self.builder, kind, [result, self.builder.trunc(flags, ir.IntType(8))])

    def result(self, bits: Any, call: _Call) -> Any:
        if call.result not in _CARRIERS:
            return self.context.cast(self.builder, bits, types.uint64, call.result)
        code = self.builder.trunc(bits, ir.IntType(call.carrier.bits))
        return self.builder.bitcast(code, self.context.get_value_type(call.result))


for _operation in OPERATIONS.values():
    if _operation.compiled is not None:
        _register(getattr(floatsim, _operation.name), _operation.operands, _operation.compiled)


@overload(draw)  # type: ignore[untyped-decorator]
def _overload_draw(seed: Any, index: Any, random_bits: Any = 32, site: Any = 0) -> Any:
    from floatsim_kernels.elementwise import njit_entry

    for name, ty in {"seed": seed, "index": index, "random_bits": random_bits, "site": site}.items():
        if isinstance(ty, GeneratorType):
            raise TypingError(f"{name} {_NO_GENERATOR}")
        if not isinstance(ty, types.Integer | types.Omitted | int):
            raise TypingError(f"{name} must be an integer, not {ty}")
    kernel = njit_entry.draw_checked

    def implementation(seed: Any, index: Any, random_bits: Any = 32, site: Any = 0) -> Any:
        return kernel(seed, index, random_bits, site)

    return implementation


def init() -> None:
    """Do nothing: Numba's entry point calls this function, and the import of this module registers everything.

    >>> import floatsim as fs
    >>> fs.njit.init()  # the import has registered everything
    """
