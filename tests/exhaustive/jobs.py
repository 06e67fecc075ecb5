"""What is run over whole input spaces, cut into chunks of a few seconds at most.

A job is a name, a number of chunks and a function from a chunk's number to (cases, mismatches, examples). Chunks do
not depend on one another, so that a run may stop anywhere and go on later, in as many processes as there are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import oracles as o
from floatsim_kernels.functions.enclosures import INSIDE
from oracles import OracleRounding

import floatsim as fs
from floatsim import Rounding, reference
from floatsim.arrays.call.options import resolve
from floatsim.emulator import backend as emulator
from floatsim.emulator.elementwise.candidates import only
from floatsim.formats.call import CallOptions
from tests.tensorcore import arrays as tensorcore_arrays
from tests.tensorcore import cases as tensorcore_cases

if __package__:
    from . import approximations, checked, cpu_units, functions, loops, paths, truth
else:
    import approximations
    import checked
    import cpu_units
    import functions
    import loops
    import paths
    import truth

Outcome = tuple[int, int, list[str]]
EXAMPLES = 5
EVERY_ROUNDING = o.every_rounding()
MODES = {m.name.lower(): m for m in o.DETERMINISTIC}


@dataclass(frozen=True)
class Job:
    name: str
    says: str
    chunks: int
    run: Callable[[int], Outcome]


def _compared(
    what: str, fmt: fs.FloatFormat, options: object, operands: tuple[np.ndarray, ...], got: tuple, want: tuple
) -> Outcome:
    differs = np.zeros(np.shape(got[0]), bool)
    for g, w in zip(got, want, strict=True):
        differs |= np.asarray(g) != np.asarray(w)
    if not differs.any():
        return differs.size, 0, []
    found = []
    for i in np.flatnonzero(differs)[:EXAMPLES]:
        mine, due = (tuple(int(np.ravel(x)[i]) for x in side) + (0,) * (2 - len(side)) for side in (got, want))
        found.append(o.report(what, fmt, options, tuple(int(np.ravel(c)[i]) for c in operands), mine, due))
    return differs.size, int(differs.sum()), found


def _joined(outcomes: list[Outcome]) -> Outcome:
    return (
        sum(x[0] for x in outcomes),
        sum(x[1] for x in outcomes),
        [line for x in outcomes for line in x[2]][:EXAMPLES],
    )


# -- all float32 values to every format --------------------------------------------------------------------------------

_CAST_CHUNK = 1 << 22


@functools.cache
def _float32_values(fmt: fs.FloatFormat) -> np.ndarray:
    """The float32 code of every code of a format, NaN as float32's canonical one."""
    d = o.vector_decode(fmt.codes(), fmt)
    x = np.where(d.infinite, np.where(d.negative, -np.inf, np.inf), d.value)
    x = np.where(d.negative & (d.value == 0) & ~d.infinite, -0.0, x).astype(np.float32)
    return np.where(d.nan, np.uint32(0x7FC00000), x.view(np.uint32))


@functools.cache
def _nan_codes(fmt: fs.FloatFormat) -> np.ndarray:
    """For every value of the code dtype, whether it is a NaN of the format."""
    every = np.arange(1 << 8 * fmt.code_dtype.itemsize, dtype=np.uint32) & np.uint32((1 << fmt.bits) - 1)
    return o.vector_decode(every.astype(fmt.code_dtype), fmt).nan


def _cast_oracle(codes: np.ndarray, fmt: fs.FloatFormat, mode: Rounding) -> tuple[np.ndarray, np.ndarray]:
    at = o.layout(fmt)
    out, flags = np.empty(codes.size, np.int64), np.empty(codes.size, np.uint8)
    if at.specials == "scale":
        loops.cast32_to_scale(codes, at.bias, at.largest, at.nan, mode.value, out, flags)
        return out, flags
    none = -1
    infinity, nan = (none if code is None else code for code in (at.inf, at.nan))
    zero_keeps_sign = at.signed_zero
    loops.cast32(codes, at.t, 1 - at.bias, at.largest, infinity, nan, at.sign_bit, zero_keeps_sign, mode.value, 0,
                 out, flags)  # fmt: skip
    return out, flags


def _cast(fmt: fs.FloatFormat, mode: Rounding, chunk: int) -> Outcome:
    """encode with flags, quantize without, and where there is one the dtype's own cast."""
    codes = np.arange(chunk * _CAST_CHUNK, (chunk + 1) * _CAST_CHUNK, dtype=np.uint32)
    x = codes.view(np.float32)
    rounding = OracleRounding(mode)
    if fmt.precision <= 24:
        want, flags = _cast_oracle(codes, fmt, mode)
    else:
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
        nan = np.isnan(x)
        want = np.where(nan, np.uint64(fmt.canonical_nan), wide.view(np.uint64))
        flags = np.where(nan & ((codes >> np.uint32(22)) & np.uint32(1) == 0), fs.INVALID, 0).astype(np.uint8)
    want = want.astype(fmt.code_dtype)
    outcomes = []
    got = fs.encode(x, fmt, rounding=mode, return_flags=True)
    outcomes.append(_compared(f"encode to {fmt.name}", fs.FP32, rounding, (codes,), got, (want, flags)))
    plain = fs.encode(x, fmt, rounding=mode)  # without flags by the fast kernels
    outcomes.append(_compared(f"encode to {fmt.name}, no flags", fs.FP32, rounding, (codes,), (plain,), (want,)))
    if fmt.bits <= 16 or fmt is fs.FP32:
        try:
            quantized = fs.quantize(x, fmt, rounding=mode).view(np.uint32)
        except TypeError:
            quantized = None
        if quantized is not None:
            grid = _float32_values(fmt)[want] if fmt.bits <= 16 else want
            outcomes.append(_compared(f"quantize to {fmt.name}", fs.FP32, rounding, (codes,), (quantized,), (grid,)))
    if mode is Rounding.TIES_TO_EVEN and fmt.dtype is not None and fmt.bits <= 16:
        with np.errstate(all="ignore"):
            theirs = x.astype(fmt.dtype).view(fmt.code_dtype)
        finite = np.isfinite(x)
        if fmt.is_scale:  # its corners are ml_dtypes' own
            finite &= (x >= np.finfo(np.float32).tiny) & (x < fmt.max)
        theirs = np.where(_nan_codes(fmt)[theirs], fmt.canonical_nan if fmt.canonical_nan is not None else 0, theirs)
        mask = fmt.code_dtype.type(fmt.magnitude_mask)
        zeros = (theirs.astype(mask.dtype) & mask == 0) & (want & mask == 0) & (fmt.specials.value == "finite")
        keep = finite & ~zeros  # FP6 and FP4: ml_dtypes may drop the sign of a zero
        outcomes.append(_compared(f"cast to {fmt.dtype}", fs.FP32, rounding, (codes[keep],),
                                  (plain[keep],), (theirs[keep].astype(fmt.code_dtype),)))  # fmt: skip
    return codes.size, sum(x[1] for x in outcomes), _joined(outcomes)[2]


# -- all pairs of FP16 and BF16 ----------------------------------------------------------------------------------------

_ROWS = 64  # values of a in a chunk
_PAIR_OPERATIONS = ("add", "subtract", "multiply", "divide")


def _float32_arithmetic(fmt: fs.FloatFormat, operation: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Values in ties-to-even: float32 arithmetic, then one rounding; NaN as the canonical one."""
    function = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}[operation]
    with np.errstate(all="ignore"):
        wide = function(a.view(fmt.dtype).astype(np.float32)[:, None], b.view(fmt.dtype).astype(np.float32)[None, :])
        narrow = wide.astype(fmt.dtype).view(np.uint16)
    narrow[np.isnan(wide)] = fmt.canonical_nan
    return narrow


def _pairs(fmt: fs.FloatFormat, operation: str, mode: Rounding, chunk: int) -> Outcome:
    at = o.layout(fmt)
    a = np.arange(chunk * _ROWS, (chunk + 1) * _ROWS, dtype=np.uint16)
    b = np.arange(1 << 16, dtype=np.uint16)
    x, y = fs.from_codes(a[:, None], fmt), fs.from_codes(b[None, :], fmt)
    function, rounding = getattr(fs, operation), OracleRounding(mode)
    result, flags = function(x, y, rounding=mode, return_flags=True)
    got = result.codes
    wrong = np.zeros(got.shape, bool)
    count = loops.verify_pairs(_PAIR_OPERATIONS.index(operation), a, b, got, flags, o.table_of_values(fmt), at.t,
                               at.largest, at.inf, at.nan, at.sign_bit, mode.value, wrong)  # fmt: skip
    found = [
        o.report(operation, fmt, rounding, (a[i], b[j]), (got[i, j], flags[i, j]), "something else")
        for i, j in np.argwhere(wrong)[:EXAMPLES]
    ] if count else []  # fmt: skip
    plain = function(x, y, rounding=mode).codes  # without flags by the fast kernels
    first = np.broadcast_to(a[:, None], got.shape).ravel()
    second = np.broadcast_to(b[None, :], got.shape).ravel()
    outcomes = [(got.size, count, found)]
    outcomes.append(
        _compared(f"{operation}, no flags", fmt, rounding, (first, second), (plain.ravel(),), (got.ravel(),))
    )
    if mode is Rounding.TIES_TO_EVEN:
        theirs = _float32_arithmetic(fmt, operation, a, b)
        outcomes.append(_compared(f"{operation} against float32", fmt, rounding, (first, second), (plain.ravel(),),
                                  (theirs.ravel(),)))  # fmt: skip
    return got.size, sum(x[1] for x in outcomes), _joined(outcomes)[2]


_ORDERINGS = (
    "minimum", "maximum", "minimum_number", "maximum_number", "equal", "not_equal", "less", "less_equal", "greater",
    "greater_equal", "unordered",
)  # fmt: skip


def _ordered_pairs(fmt: fs.FloatFormat, operation: str, chunk: int) -> Outcome:
    """Fast kernels, without flags and with them, against integer kernels."""
    a, b = np.arange(chunk * _ROWS, (chunk + 1) * _ROWS, dtype=np.uint16), np.arange(1 << 16, dtype=np.uint16)
    x, y = fs.from_codes(a[:, None], fmt), fs.from_codes(b[None, :], fmt)
    function = getattr(fs, operation)
    got, flagged = function(x, y), function(x, y, return_flags=True)
    operands = tuple(np.broadcast_to(c, x.shape[:1] + y.shape[1:]).ravel() for c in (a[:, None], b[None, :]))
    want = flagged if isinstance(got, np.ndarray) else _by_integers(operation, operands, fmt, resolve({}))
    rounding = OracleRounding(Rounding.TIES_TO_EVEN)
    found = tuple(np.ravel(getattr(r, "codes", r)) for r in (got, *flagged))
    return _compared(operation, fmt, rounding, operands, found, tuple(map(np.ravel, (want[0], *want))))


def _by_integers(operation: str, operands: tuple[np.ndarray, ...], fmt: fs.FloatFormat, options: CallOptions) -> tuple:
    """Codes and flags of the integer kernels."""
    pairs = [(x, fmt) for x in operands]
    with only("integers"):
        codes, events = emulator.elementwise(operation, pairs, fmt, options)
    return codes, events & np.uint8(31)


def _fma_triples(fmt: fs.FloatFormat, mode: Rounding, chunk: int) -> Outcome:
    """Every fma with the first operand `chunk`, by fast kernels and by integer kernels."""
    codes = fmt.codes()
    operands = [np.broadcast_to(c, (codes.size,) * 2).ravel() for c in (codes[chunk], codes[:, None], codes[None, :])]
    x = [fs.from_codes(c, fmt) for c in operands]
    keywords = {"rounding": mode, "seed": chunk}
    got, (flagged, flags) = fs.fma(*x, **keywords).codes, fs.fma(*x, return_flags=True, **keywords)
    want = _by_integers("fma", tuple(operands), fmt, resolve(keywords))
    found = (got, flagged.codes, flags)
    return _compared("fma", fmt, OracleRounding(mode), tuple(operands), found, (want[0], *want))


# -- structured and random cases of wide formats ----------------------------------------------------------------------

_STRUCTURED_CHUNK = 1 << 16


def _kernel(operation: str, operands: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: OracleRounding) -> tuple:
    arrays = [(c.astype(fmt.code_dtype), fmt) for c in operands]
    return emulator.elementwise(operation, arrays, fmt, resolve(rounding.keywords))


def _public(
    operation: str, operands: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: OracleRounding
) -> np.ndarray:
    arrays = [fs.from_codes(c.astype(fmt.code_dtype), fmt) for c in operands]
    return getattr(fs, operation)(*arrays, **rounding.keywords).codes


def _structured(fmt: fs.FloatFormat, operation: str, chunk: int) -> Outcome:
    """Codes and event bytes; one part of the chunk for each of a few ways of rounding."""
    r = np.random.default_rng([20261121, chunk, *f"{fmt.name} {operation}".encode()])
    size = _STRUCTURED_CHUNK if fmt.precision <= 24 else _STRUCTURED_CHUNK // 8
    codes = o.structured(fmt, o.ARITY[operation], size, r)
    order = r.permutation(len(codes[0]))
    outcomes = []
    for part, k in zip(np.array_split(order, 12), r.permutation(len(EVERY_ROUNDING)), strict=False):
        rounding, operands = EVERY_ROUNDING[k], tuple(c[part] for c in codes)
        if fmt.precision <= 24:
            want, events = o.vector_operation(operation, operands, fmt, rounding)
        else:
            want, events = _one_by_one(operation, operands, fmt, rounding)
        got, happened = _kernel(operation, operands, fmt, rounding)
        want = want.astype(fmt.code_dtype)
        outcomes.append(_compared(operation, fmt, rounding, operands, (got, happened), (want, events)))
        plain = _public(operation, operands, fmt, rounding)
        _, bad, lines = _compared(f"{operation}, no flags", fmt, rounding, operands, (plain,), (want,))
        outcomes.append((0, bad, lines))
    return _joined(outcomes)


def _one_by_one(
    operation: str, operands: tuple[np.ndarray, ...], fmt: fs.FloatFormat, rounding: OracleRounding
) -> tuple:
    at = o.layout(fmt)
    want = []
    for row in zip(*(c.tolist() for c in operands), strict=True):
        values = tuple(at.decode(c, rounding.daz) for c in row)
        if operation in ("remainder", "fmod"):
            want.append(o.integer_remainder(operation, *values, fmt, rounding))
        else:
            want.append(o.Exact(operation, values, fmt)(rounding))
    codes, events = zip(*want, strict=True)
    return np.array(codes, np.uint64), np.array(events, np.uint8)


# -- against the reference itself -------------------------------------------------------------------------------------


_POLICIES = len(o.POLICIES)
_WAYS = len(o.DETERMINISTIC) * _POLICIES


def _way(fmt: fs.FloatFormat, operation: str, k: int) -> OracleRounding:
    """The k-th of the modes and policies, with DAZ, FTZ and a tininess rule drawn for it."""
    mode, policy = o.DETERMINISTIC[k // _POLICIES], o.POLICIES[k % _POLICIES]
    r = np.random.default_rng([k, *f"{fmt.name} {operation}".encode()])
    ways = [h for h in EVERY_ROUNDING if h.rounding is mode and h.overflow is policy]
    return ways[r.integers(len(ways))]


def _unary(fmt: fs.FloatFormat) -> list[str]:
    own = [] if fmt.is_scale else ["sqrt", "rint", "floor", "ceil", "trunc"]
    return own + [f"convert to {f.name}" for f in o.NAMED]


def _every_code(fmt: fs.FloatFormat, chunk: int) -> Outcome:
    """All codes of a format of at most 16 bits, one operand: kernels and reference."""
    operation = _unary(fmt)[chunk // _WAYS]
    options = _way(fmt, operation, chunk % _WAYS)
    codes, target = fmt.codes(), fmt
    if operation.startswith("convert to "):
        target = fs.as_format(operation.removeprefix("convert to "))
        kernel, function = emulator.convert(codes, fmt, target, resolve(options.keywords)), reference.convert
    else:
        kernel, function = _kernel(operation, (codes,), fmt, options), getattr(reference, operation)
    results = [function(reference.decode(c, fmt, options.daz), target, options.attributes) for c in codes.tolist()]
    want, events = zip(*results, strict=True)
    return _compared(operation, fmt, options, (codes,), kernel, (np.array(want, kernel[0].dtype), np.array(events)))


_TWO_OPERANDS = (*_PAIR_OPERATIONS, "remainder", "fmod")


def _every_pair(fmt: fs.FloatFormat, chunk: int) -> Outcome:
    """All pairs of a format of at most 8 bits: kernels and reference."""
    operation = _TWO_OPERANDS[chunk // _WAYS]
    options = _way(fmt, operation, chunk % _WAYS)
    every = np.arange(1 << fmt.bits, dtype=np.uint64)
    operands = tuple(g.ravel() for g in np.meshgrid(every, every, indexing="ij"))
    got, happened = _kernel(operation, operands, fmt, options)
    function = getattr(reference, operation)
    numbers = [reference.decode(c, fmt, options.daz) for c in every.tolist()]
    rows = zip(*(c.tolist() for c in operands), strict=True)
    want, events = zip(*(function(numbers[a], numbers[b], fmt, options.attributes) for a, b in rows), strict=True)
    return _compared(operation, fmt, options, operands, (got, happened), (np.array(want, got.dtype), np.array(events)))


def _stochastic_pairs(fmt: fs.FloatFormat, operation: str, chunk: int) -> Outcome:
    """All pairs of a 16-bit format, rounded stochastically: the fast kernels against the integer kernels."""
    a = np.arange(chunk * _ROWS, (chunk + 1) * _ROWS, dtype=np.uint16)
    first, second = (x.ravel() for x in np.broadcast_arrays(a[:, None], fmt.codes()[None, :]))
    options = resolve({"rounding": Rounding.STOCHASTIC, "seed": chunk})
    operands = [(x, fmt) for x in (first, second)]
    got, _ = emulator.elementwise(operation, operands, fmt, options, want_events=False)
    with only("integers"):
        want, _ = emulator.elementwise(operation, operands, fmt, options)
    return _compared(operation, fmt, OracleRounding(Rounding.STOCHASTIC), (first, second), (got,), (want,))


# -- one step of a sum -------------------------------------------------------------------------------------------------


def _step(fmt: fs.FloatFormat, accumulation: fs.accumulation.Accumulation, mode: Rounding, chunk: int) -> Outcome:
    """round(c + a * b), or with the product rounded: whatever is fast against the integer kernels.

    8 bits: one c, all a, all b. 16 bits: some c, b = 1, all a.
    """
    every = fs.from_codes(fmt.codes(), fmt)
    if fmt.bits <= 8:
        a, b, c = every[:, None], every[None, :], every[chunk : chunk + 1]
    else:
        c = every[chunk * _STEP_ROWS : (chunk + 1) * _STEP_ROWS, None]
        a, b = fs.array(np.ones((_STEP_ROWS, 1)), fmt), every[None, :]
    keywords = {"accumulate": accumulation, "rounding": mode, "seed": chunk}
    got = fs.matmul(a, b, c, **keywords).codes
    with fs.record():
        want = fs.matmul(a, b, c, **keywords).codes
    operands = tuple(np.broadcast_to(x.codes, got.shape).ravel() for x in (a, b, c))
    return _compared(str(accumulation), fmt, OracleRounding(mode), operands, (got.ravel(),), (want.ravel(),))


_STEP_ROWS = 16
_STEPS = {"": {}, "-fused": {"fused": True}}


# -- sums of matrix units ----------------------------------------------------------------------------------------------

_TILE, _LARGE_TILE = 16, 32  # rows and columns: a chunk has 256 dot products by the reference, or 1024 on arrays


def _tile(cases: list[tensorcore_cases.Case]) -> int:
    return _LARGE_TILE if tensorcore_arrays.can_do(cases[0].row) else _TILE


def _matrix_unit(cases: list[tensorcore_cases.Case], chunk: int) -> Outcome:
    """One instruction, one and a half, or two, on operands of some style; codes and events.

    By the models on arrays, or in FP64 by the reference.
    """
    rng = np.random.default_rng(chunk)
    case, style = cases[chunk % len(cases)], tensorcore_cases.STYLES[chunk // len(cases) % len(tensorcore_cases.STYLES)]
    k = case.row.k * int(rng.integers(1, 3)) - int(rng.integers(0, 2)) * (case.row.k // 2)
    right = tensorcore_cases.by_reference
    if tensorcore_arrays.can_do(case.row):
        right = tensorcore_arrays.by_arrays
    size = _tile(cases)
    found = tensorcore_cases.compare(case, rng, size, k, size, style, right)
    return size * size, len(found), [str(x) for x in found[:EXAMPLES]]


# -- mathematical functions --------------------------------------------------------------------------------------------

_FUNCTION_CHUNK, _FLOAT32_CHUNK = 1 << 10, 1 << 18
_BINARY = ("power", "hypot")


def _outcome(fmt: fs.FloatFormat, found: list) -> Outcome:
    return _joined([_compared(name, fmt, way, operands, got, want) for name, way, operands, got, want in found])


def _function(fmt: fs.FloatFormat, name: str, chunk: int) -> Outcome:
    """All codes of a chunk by MPFR, with events and without."""
    return _outcome(fmt, functions.codes_by_mpfr(fmt, name, _FUNCTION_CHUNK, chunk))


def _function_pairs(fmt: fs.FloatFormat, name: str, chunk: int) -> Outcome:
    """All pairs with one first operand by MPFR, with events and without."""
    return _outcome(fmt, functions.pairs_by_mpfr(fmt, name, chunk))


def _float32_function(name: str, chunk: int) -> Outcome:
    """All float32 codes of a chunk by NumPy's float64 functions, and by MPFR where these are not certain."""
    return _outcome(fs.FP32, functions.float32_by_numpy(name, _FLOAT32_CHUNK, chunk)[0])


def _float32_ends(name: str, chunk: int) -> Outcome:
    """All float32 codes of a chunk: the ends of the kernel, and the results to nearest."""
    found, missed, _ = functions.float32_ends(name, _FLOAT32_CHUNK, chunk)
    cases, mismatches, examples = _outcome(fs.FP32, found)
    return cases, mismatches + missed, [*examples, *([f"{missed} values outside the ends"] if missed else [])]


def _float32_nearest(name: str, chunk: int) -> Outcome:
    """All float32 codes of a chunk: results to nearest from one float64 number against both ends."""
    return _outcome(fs.FP32, functions.float32_nearest(name, _FLOAT32_CHUNK, chunk))


def _approximation(name: str, ftz: bool, chunk: int) -> Outcome:
    """Random codes: the kernel and the reference."""
    operands, got, want = approximations.sample(name, ftz, chunk)
    return _compared(f"{name}.approx", fs.FP32, approximations.ROUNDING, operands, got, want)


_CHECKED_CHUNKS = 200
_PATH_CHUNKS = 300  # of about 5,000 elements each (vector_blocks: 3,000)


@functools.cache
def jobs() -> dict[str, Job]:
    """All jobs by name, in the order in which a full run takes them."""
    found: list[Job] = []

    def add(name: str, says: str, chunks: int, run: Callable[[int], Outcome]) -> None:
        found.append(Job(name.lower(), says, chunks, run))

    for fmt in o.NAMED:
        if fmt.bits <= 8 and not fmt.is_scale:
            add(f"reference-pairs-{fmt.name}", f"all pairs of {fmt.name}, six operations, by the reference",
                len(_TWO_OPERANDS) * _WAYS, functools.partial(_every_pair, fmt))  # fmt: skip
        if fmt.bits <= 16:
            add(f"reference-codes-{fmt.name}", f"all codes of {fmt.name}, operations of one operand, by the reference",
                len(_unary(fmt)) * _WAYS, functools.partial(_every_code, fmt))  # fmt: skip
    for fmt in (fs.FP32, fs.FP16, fs.BF16, fs.TF32, fs.FP64, fs.E4M3, fs.E5M2, *o.CUSTOM[1:3]):
        for operation in o.ARITY:
            cases = 1 << 21 if fmt.precision <= 24 else 1 << 18
            chunk = _STRUCTURED_CHUNK if fmt.precision <= 24 else _STRUCTURED_CHUNK // 8
            add(f"structured-{fmt.name}-{operation}", f"hard cases of {operation} in {fmt.name}", cases // chunk,
                functools.partial(_structured, fmt, operation))  # fmt: skip
    for mode in o.DETERMINISTIC:
        for fmt in (*o.NAMED, fs.FloatFormat.ieee(6, 9, "ieee-6-9")):
            if mode is Rounding.TIES_TO_EVEN or fmt.bits <= 19:
                add(f"float32-to-{fmt.name}-{mode.name}", f"all float32 values to {fmt.name}, {mode.name}",
                    (1 << 32) // _CAST_CHUNK, functools.partial(_cast, fmt, mode))  # fmt: skip
    for mode in o.DETERMINISTIC:
        for fmt in (fs.FP16, fs.BF16):
            for operation in _PAIR_OPERATIONS:
                add(f"pairs-{fmt.name}-{operation}-{mode.name}", f"all pairs of {fmt.name}, {operation}, {mode.name}",
                    (1 << 16) // _ROWS, functools.partial(_pairs, fmt, operation, mode))  # fmt: skip
    for fmt in (fs.FP16, fs.BF16):
        for operation in _PAIR_OPERATIONS:
            add(f"pairs-{fmt.name}-{operation}-stochastic", f"all pairs of {fmt.name}, {operation}, fast and not",
                (1 << 16) // _ROWS, functools.partial(_stochastic_pairs, fmt, operation))  # fmt: skip
    for fmt in (fs.FP16, fs.BF16):
        for operation in _ORDERINGS:
            add(f"order-{fmt.name}-{operation}", f"all pairs of {fmt.name}, {operation}, fast and not",
                (1 << 16) // _ROWS, functools.partial(_ordered_pairs, fmt, operation))  # fmt: skip
    for mode in Rounding:
        for fmt in (fs.E4M3, fs.E5M2, fs.E4M3FNUZ, fs.E3M4, fs.E2M3):
            add(f"fma-{fmt.name}-{mode.name}", f"all triples of {fmt.name}, fma, {mode.name}, fast and not",
                1 << fmt.bits, functools.partial(_fma_triples, fmt, mode))  # fmt: skip
    for mode in Rounding:
        for fmt in (fs.E4M3, fs.E5M2, fs.E4M3FNUZ, fs.E3M4, fs.E2M3, fs.FP16, fs.BF16):
            for kind, fields in _STEPS.items():
                if fmt.bits <= 8 or not fields:
                    terms = "all c + a*b" if fmt.bits <= 8 else "all c + a"
                    add(f"steps-{fmt.name}{kind}-{mode.name}", f"{terms} of {fmt.name}, {mode.name}, fast and not",
                        1 << fmt.bits if fmt.bits <= 8 else (1 << fmt.bits) // _STEP_ROWS,
                        functools.partial(_step, fmt, fs.Sequential(fmt, **fields), mode))  # fmt: skip
    for name in o.FUNCTIONS:
        for fmt in o.NAMED:
            if fmt.is_scale:
                continue
            if name in _BINARY and fmt.bits <= 8:
                add(f"functions-{fmt.name}-{name}", f"all pairs of {fmt.name}, {name}, by MPFR",
                    1 << fmt.bits, functools.partial(_function_pairs, fmt, name))  # fmt: skip
            elif name not in _BINARY and fmt.bits <= 16:
                add(f"functions-{fmt.name}-{name}", f"all codes of {fmt.name}, {name}, by MPFR",
                    max(1, (1 << fmt.bits) // _FUNCTION_CHUNK), functools.partial(_function, fmt, name))  # fmt: skip
    for name in functions.FLOAT32_FUNCTIONS:
        add(f"functions-fp32-{name}", f"all float32 values, {name}, by float64 functions and MPFR",
            (1 << 32) // _FLOAT32_CHUNK, functools.partial(_float32_function, name))  # fmt: skip
        add(f"ends-fp32-{name}", f"all float32 values, the ends of {name} and its results to nearest",
            (1 << 32) // _FLOAT32_CHUNK, functools.partial(_float32_ends, name))  # fmt: skip
    for name in INSIDE:
        add(f"nearest-fp32-{name}", f"all float32 values, {name} to nearest from one float64 number, by both ends",
            (1 << 32) // _FLOAT32_CHUNK, functools.partial(_float32_nearest, name))  # fmt: skip
    for name in approximations.SUMS:
        add(f"approx-{name}", f"all float32 codes, {name}.approx, by the sum of an H200's results", 1,
            functools.partial(approximations.compare_sum, name))  # fmt: skip
    for name, ftz in approximations.forms():
        add(f"approx-{name}{'-ftz' if ftz else ''}-sample", f"random float32 codes, {name}.approx, by the reference",
            approximations.CHUNKS, functools.partial(_approximation, name, ftz))  # fmt: skip
    for name in truth.TRUTH_TABLES:
        add(f"truth-{name}", f"the truth table {name} and its digest, by MPFR", truth.CHUNKS,
            functools.partial(truth.compare, name))  # fmt: skip
    for group in checked.GROUPS:
        add(f"checked-{group}", f"{checked.CALLS} random calls a chunk, {group}, with every access to memory checked",
            _CHECKED_CHUNKS, functools.partial(checked.in_checked_process, group))  # fmt: skip
    for name, cases in tensorcore_cases.groups().items():
        add(f"tensorcore-{name}", "a million dot products as a matrix unit's, by the reference and the kernels",
            1_000_000 // _tile(cases) ** 2 + 1, functools.partial(_matrix_unit, cases))  # fmt: skip
    for dot in cpu_units.dots():
        add(f"cpu-units-{dot.name}", f"{cpu_units.TOTAL:,} dot products by {dot.name} of this CPU and the emulator",
            cpu_units.TOTAL // cpu_units.ROWS, functools.partial(cpu_units.compare, dot))  # fmt: skip
    for whole in cpu_units.integers():
        add(f"cpu-units-{whole.name}", f"{cpu_units.TOTAL:,} integer dot products by {whole.name} of this CPU",
            cpu_units.TOTAL // cpu_units.ROWS, functools.partial(cpu_units.compare_integers, whole))  # fmt: skip
    for row in cpu_units.conversions():
        add(f"cpu-units-{row.name}-{row.rounding.name}", f"all codes of {row.source} by {row.name} of this CPU",
            max(1, (1 << row.source.bits) // cpu_units.CODES), functools.partial(cpu_units.convert, row))  # fmt: skip
    for name, theme in paths.JOBS.items():
        add(f"paths-{name}", theme.__doc__ or name, _PATH_CHUNKS, functools.partial(paths.run, name))
    return {job.name: job for job in found}
