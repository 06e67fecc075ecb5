"""Cases of matmul, dot and the reductions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import floatsim as fs

from .case import Case
from .descriptions import COMPOSITES, LEAVES, SCANS, exact_products
from .formats import ACCUMULATORS, CUSTOM, OPERANDS, find
from .inputs import PAIR_STYLES, bits, codes, pair, terms

__all__ = ["cases"]

ROUNDINGS = tuple(rounding.name.lower() for rounding in fs.Rounding)
_MAIN = ["fp32", "fp16", "bf16", "fp64", "tf32", "e5m2", "e4m3"]
_NAMED = [name for name in ACCUMULATORS if name not in CUSTOM]
_ALL = {**LEAVES, **COMPOSITES}


def _cycle(items: Any) -> Callable[[], Any]:
    """Take the items in turn, again and again."""
    return itertools.cycle(items).__next__


# -- options of a call -------------------------------------------------------------------------------------------------

_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "ftz": {"ftz": True}, "daz": {"daz": True}, "ftz-daz": {"ftz": True, "daz": True},
    "before": {"tininess": "before", "ftz": True}, "saturate": {"overflow": "saturate_finite"},
    "propagate": {"overflow": "saturate_propagate"}, "to-fp16": {"format": "fp16"},
    "to-e4m3": {"format": "e4m3", "overflow": "saturate_finite"},
    "to-fp32-odd": {"format": "fp32", "result_rounding": "to_odd"},
    "to-bf16-up": {"format": "bf16", "result_rounding": "toward_positive"},
}  # fmt: skip


def _keywords(rounding: str, options: str) -> dict[str, Any]:
    found = {"rounding": rounding, **_OPTIONS[options]}
    if rounding == "stochastic":
        found |= {
            "seed": 1234567,
            "random_bits": {"ftz": 8, "daz": 64, "saturate": 1, "propagate": 12}.get(options, 32),
        }
    return found


# -- products ----------------------------------------------------------------------------------------------------------

Shape = tuple[tuple[int, ...], tuple[int, ...]]

MATRICES: dict[str, Shape] = {
    "1x1x1": ((1, 1), (1, 1)), "16x24x20": ((16, 24), (24, 20)), "3x7x5": ((3, 7), (7, 5)),
    "1x40x1": ((1, 40), (40, 1)), "9x300x33": ((9, 300), (300, 33)), "33x17x3": ((33, 17), (17, 3)),
    "vector-64": ((64,), (64,)), "2x128x16": ((2, 128), (128, 16)), "matrix-vector": ((18, 33), (33,)),
    "vector-matrix": ((50,), (50, 17)), "16x16x16": ((16, 16), (16, 16)), "1x9x70": ((1, 9), (9, 70)),
    "batch-2x3": ((2, 3, 4, 18), (18, 6)), "batch-broadcast": ((3, 1, 5, 8), (2, 8, 17)), "4x0x3": ((4, 0), (0, 3)),
}  # fmt: skip
LARGE: dict[str, Shape] = {
    "40x300x33": ((40, 300), (300, 33)), "70x20x530": ((70, 20), (20, 530)), "130x65x18": ((130, 65), (65, 18)),
    "vector-5000": ((5000,), (5000,)), "300x40x5": ((300, 40), (40, 5)), "2x1100x20": ((2, 1100), (1100, 20)),
}  # fmt: skip
_LAYOUTS = ("C", "C", "F", "C", "T", "strided")


def _laid_out(x: fs.FloatArray, layout: str) -> fs.FloatArray:
    """The same values in another memory layout."""
    if x.ndim != 2 or layout == "C":
        return x
    if layout == "F":
        return fs.from_codes(np.asfortranarray(x.codes), x.format)
    if layout == "T":
        return fs.from_codes(np.ascontiguousarray(x.codes.T), x.format).T
    return fs.from_codes(np.repeat(x.codes, 2, axis=1), x.format)[:, ::2]


def _product(
    describe: Callable[[], Any], formats: tuple[str, str], shape: Shape, style: str, layout: str, operation: Any,
    keywords: dict[str, Any],
) -> Callable[[str], Any]:  # fmt: skip
    def call(name: str) -> Any:
        x, y = pair(find(formats[0]), find(formats[1]), *shape, style, name)
        return operation(_laid_out(x, layout), _laid_out(y, layout), accumulate=describe(), **keywords)

    return call


def _wide(label: str, formats: tuple[str, str]) -> bool:
    return exact_products(label) and sum(find(name).precision for name in formats) > 53


def _product_case(
    family: str, label: str, acc: str, formats: tuple[str, str], rounding: str, options: str, shape: tuple[str, Shape],
    style: str, layout: str = "C", more: str = "",
) -> Case:  # fmt: skip
    family = "exact-wide" if _wide(label, formats) else family
    name = f"{family}/{label}({acc})/{formats[0]}x{formats[1]}/{rounding}/{options}/{shape[0]}{more}/{style}/{layout}"
    operation = fs.dot if family == "dot" else fs.matmul
    call = _product(
        lambda: _ALL[label](find(acc)), formats, shape[1], style, layout, operation, _keywords(rounding, options)
    )
    return Case(name, call)


def _matmuls() -> Iterator[Case]:
    formats, roundings, options = _cycle(OPERANDS), _cycle([*ROUNDINGS, "ties_to_even"]), _cycle([*_OPTIONS, "plain"])
    shapes, styles, layouts = _cycle(MATRICES.items()), _cycle(PAIR_STYLES), _cycle(_LAYOUTS)

    def case(label: str, acc: str) -> Case:
        return _product_case(
            "matmul", label, acc, formats(), roundings(), options(), shapes(), styles(), layouts()
        )  # fmt: skip

    for _ in range(2):
        for acc, label in itertools.product(_NAMED, _ALL):
            yield case(label, acc)
    every = _cycle(_ALL)
    for acc, label in itertools.product(CUSTOM, ("sequential", "fused", "pairwise", "kahan", "neumaier", "exact")):
        yield case(label, acc)
        yield case(every(), acc)


def _main_matmuls() -> Iterator[Case]:
    """The descriptions and formats that are used most, in every rounding, without other options."""
    styles, layouts = _cycle(PAIR_STYLES), _cycle(_LAYOUTS)
    shapes = _cycle([item for item in MATRICES.items() if item[0] in ("16x24x20", "9x300x33", "33x17x3", "1x9x70")])
    pairs = {"fp64": [("fp64", "fp64"), ("fp32", "fp32")], "tf32": [("tf32", "tf32"), ("bf16", "bf16")]}
    pairs |= {"e5m2": [("e5m2", "e5m2"), ("e4m3", "e4m3")], "e4m3": [("e4m3", "e4m3"), ("e5m2", "e4m3")]}
    pairs |= {"fp32": [("fp32", "fp32"), ("fp16", "fp16"), ("bf16", "bf16"), ("e4m3", "e4m3"), ("tf32", "tf32")]}
    for acc, label, rounding in itertools.product(
        _MAIN, ("sequential", "fused", "pairwise", "kahan", "neumaier"), ROUNDINGS
    ):
        for formats in pairs.get(acc, [("fp16", "fp16"), ("bf16", "bf16")]):
            yield _product_case("main", label, acc, formats, rounding, "plain", shapes(), styles(), layouts())


def _large_matmuls() -> Iterator[Case]:
    styles, roundings = _cycle(PAIR_STYLES), _cycle([*ROUNDINGS, "ties_to_even"])
    formats, shapes = (
        _cycle([("fp16", "fp16"), ("bf16", "bf16"), ("e4m3", "e4m3"), ("fp32", "fp32")]),
        _cycle(LARGE.items()),
    )
    for acc, label in itertools.product(["fp32", "fp16", "bf16", "ieee(8,13)", "ieee(5,23)"], _ALL):
        yield _product_case("large", label, acc, formats(), roundings(), "plain", shapes(), styles())


def _exact_matmuls() -> Iterator[Case]:
    """Exact sums of products of up to 53 bits, and of more."""
    shapes, styles, roundings = _cycle(MATRICES.items()), _cycle(PAIR_STYLES), _cycle(["ties_to_even", *ROUNDINGS])
    pairs = (
        "fp64 fp64",
        "fp64 fp32",
        "fp32 ieee(8,25)",
        "ieee(8,24) ieee(8,25)",
        "ieee(10,51) e4m3",
        "ieee(11,51) e2m1",
        "ieee(10,49) e4m3",
        "ieee(10,49) e2m1",
        "ieee(11,50) e2m1",
        "fp32 fp32",
        "fp32 ieee(8,24)",
    )
    for acc, formats in itertools.product(("fp32", "fp64", "e5m2", "ieee(5,23)", "ieee(11,51)"), pairs):
        pair_of = tuple(formats.split())
        yield _product_case("exact", "exact", acc, pair_of, roundings(), "plain", shapes(), styles())


def _dots() -> Iterator[Case]:
    shapes = _cycle(
        [(f"vector-{n}", ((n,), (n,))) for n in (1, 2, 17, 100, 1000, 5003)]
        + [("matrix-vector", ((5, 40), (40,))), ("3d", ((2, 3, 12), (12, 5)))]
    )
    formats, roundings, styles = _cycle(OPERANDS), _cycle(["ties_to_even", *ROUNDINGS]), _cycle(PAIR_STYLES)
    for acc, label in itertools.product(_MAIN, _ALL):
        yield _product_case("dot", label, acc, formats(), roundings(), "plain", shapes(), styles())
    every = _cycle(_ALL)
    for acc in CUSTOM:
        label = every()
        yield _product_case("dot", label, acc, formats(), roundings(), "plain", shapes(), styles())


# -- c, alpha, beta ----------------------------------------------------------------------------------------------------

_SCALED: dict[str, dict[str, Any]] = {
    "c": {}, "alpha": {"alpha": 0.1}, "alpha-beta": {"alpha": -1.5, "beta": 0.3}, "beta-0": {"alpha": 1, "beta": 0},
    "alpha-0": {"alpha": 0, "beta": 2}, "alpha-2**70": {"alpha": 2.0**70, "beta": 2.0**-70},
}  # fmt: skip


def _scaled(
    label: str, acc: str, formats: tuple[str, str], scales: str, c: str, keywords: Any, shape: Any, style: str
) -> Any:
    def call(name: str) -> Any:
        x, y = pair(find(formats[0]), find(formats[1]), *shape, style, name)
        z = codes(find(c), (shape[0][0], shape[1][1]), style, f"{name}/c")
        return fs.matmul(x, y, z, accumulate=_ALL[label](find(acc)), **_SCALED[scales], **keywords)

    return call


def _with_c() -> Iterator[Case]:
    formats, roundings, styles = _cycle(OPERANDS), _cycle(["ties_to_even", *ROUNDINGS]), _cycle(PAIR_STYLES)
    scales, options = _cycle(_SCALED), _cycle(["plain", "daz", "plain", "ftz", "saturate"])
    shapes = _cycle([item for item in MATRICES.items() if item[0] in ("16x24x20", "3x7x5", "33x17x3", "4x0x3")])
    addends = _cycle(["fp32", "fp16", "ieee(8,13)", "fp64", "e4m3", "fnuz(5,10)", "bf16"])
    accs = [*_NAMED, "ieee(5,23)", "fn(6,12)", "finite(7,12)"]
    for acc, label in itertools.product(accs, _ALL):
        if label.startswith(("sequential-product", "kahan-p", "strided-3", "splitk-3", "blocked-fp32")):
            continue
        which, (size, shape), kinds, c = scales(), shapes(), formats(), addends()
        rounding, option, style = roundings(), options(), styles()
        family = "exact-wide" if _wide(label, kinds) else "matmul-c"
        if exact_products(label) and find(c).precision > 53 - 2:
            c = "fp32"
        name = f"{family}/{label}({acc})/{kinds[0]}x{kinds[1]}+{c}/{which}/{rounding}/{option}/{size}/{style}"
        yield Case(name, _scaled(label, acc, kinds, which, c, _keywords(rounding, option), shape, style))


# -- reductions --------------------------------------------------------------------------------------------------------

_SUMS: dict[str, tuple[tuple[int, ...], Any]] = {
    "24x20-axis-0": ((24, 20), 0), "24x20-axis-1": ((24, 20), 1), "7x9-all": ((7, 9), None),
    "5003": ((5003,), None), "4x5x6-axes-0-2": ((4, 5, 6), (0, 2)), "100": ((100,), 0), "3x300-axis-1": ((3, 300), 1),
    "1": ((1,), None), "2x0-axis-1": ((2, 0), 1), "300x40-axis-0": ((300, 40), 0), "129x3-axis-0": ((129, 3), 0),
}  # fmt: skip


def _reduction(
    operation: str, describe: Callable[[], Any], fmt: str, shape: tuple[int, ...], axis: Any, style: str,
    keywords: dict[str, Any],
) -> Callable[[str], Any]:  # fmt: skip
    def call(name: str) -> Any:
        x = terms(find(fmt), shape, style, name, axis if isinstance(axis, int) else 0)
        return getattr(fs, operation)(x, axis, accumulate=describe(), **keywords)

    return call


_TERM_FORMATS = [
    "fp16", "bf16", "fp32", "e4m3", "e5m2", "fp64", "tf32", "e2m1", "ieee(5,11)", "ieee(8,24)", "fn(4,7)",
    "fnuz(5,10)", "e4m3fnuz", "ieee(6,22)", "finite(6,5)", "ieee(8,10)", "ieee(5,10,bias=28)", "e3m2", "ieee(9,7)",
]  # fmt: skip


def _sums() -> Iterator[Case]:
    formats, roundings, options = (
        _cycle(_TERM_FORMATS),
        _cycle(["ties_to_even", *ROUNDINGS]),
        _cycle([*_OPTIONS, "plain"]),
    )
    shapes, styles = _cycle(_SUMS.items()), _cycle(PAIR_STYLES)

    def case(family: str, label: str, acc: str) -> Case:
        fmt, rounding, option, (size, (shape, axis)), style = formats(), roundings(), options(), shapes(), styles()
        name = f"{family}/{label}({acc})/{fmt}/{rounding}/{option}/{size}/{style}"
        keywords = _keywords(rounding, option)
        return Case(name, _reduction(family, lambda: _ALL[label](find(acc)), fmt, shape, axis, style, keywords))

    labels = [label for label in _ALL if "product" not in label and "unrounded" not in label]
    for acc, label in itertools.product(_NAMED, labels):
        yield case("sum", label, acc)
    every = _cycle(["numpy", "kahan", "neumaier", "exact", "strided-4", "sequential-ftz-daz", "blocked-7-exact"])
    for acc, label in itertools.product(CUSTOM, ("sequential", "pairwise", "other", "another")):
        yield case("sum", every() if "other" in label else label, acc)
    leaves = ("sequential", "pairwise", "kahan", "exact", "strided-4", "blocked-16-fp32")
    for family in ("mean", "norm", "var"):
        for acc, label in itertools.product([*_NAMED, "ieee(5,23)", "ieee(8,13)", "fnuz(8,7)"], leaves):
            if family == "mean" or not label.startswith("exact"):
                yield case(family, label, acc)
    for acc, label in itertools.product(
        [*_NAMED, *itertools.islice(CUSTOM, 0, None, 3)], ("sequential", "halving", "numpy")
    ):
        yield case("prod", label, acc)


def _scans() -> Iterator[Case]:
    formats, roundings, styles = _cycle(_TERM_FORMATS), _cycle(["ties_to_even", *ROUNDINGS]), _cycle(PAIR_STYLES)
    shapes = _cycle([item for item in _SUMS.items() if not isinstance(item[1][1], tuple)])
    for acc, label in itertools.product([*_NAMED, *itertools.islice(CUSTOM, 1, None, 3)], SCANS):
        fmt, rounding, (size, (shape, axis)), style = formats(), roundings(), shapes(), styles()
        name = f"cumsum/{label}({acc})/{fmt}/{rounding}/{size}/{style}"

        def describe(label: str = label, acc: str = acc) -> Any:
            return LEAVES[label](find(acc))

        yield Case(name, _reduction("cumsum", describe, fmt, shape, axis, style, _keywords(rounding, "plain")))


def _masked(operation: str, acc: str, fmt: str, initial: str, rounding: str, keepdims: bool) -> Callable[[str], Any]:
    def call(name: str) -> Any:
        x = terms(find(fmt), (30, 9), "easy", name)
        where = (bits(f"{name}/where", 270) % np.uint64(3) > 0).reshape(30, 9)
        keywords = {"where": where, "keepdims": keepdims, **_keywords(rounding, "plain")}
        if operation in ("sum", "prod"):
            keywords["initial"] = codes(find(initial), (), "easy", f"{name}/initial")
        return getattr(fs, operation)(x, 0, accumulate=acc, **keywords)

    return call


def _masks() -> Iterator[Case]:
    formats, roundings = _cycle(_TERM_FORMATS), _cycle(["ties_to_even", *ROUNDINGS])
    for operation, acc in itertools.product(
        ("sum", "mean", "norm", "var", "prod"),
        ("fp32", "fp16", "bf16", "pairwise(fp16)", "pairwise(fp32, numpy)", "ieee(5,23)", "e4m3"),
    ):
        fmt, rounding = formats(), roundings()
        name = f"masked/{operation}/{acc}/{fmt}/{rounding}"
        yield Case(name, _masked(operation, acc, fmt, "fp32", rounding, acc == "fp16"))


# -- other ways to call ------------------------------------------------------------------------------------------------


def _in_context(name: str) -> Any:
    x, y = pair(fs.FP16, fs.FP16, (16, 24), (24, 20), "spread", name)
    with fs.context(rounding="toward_negative", ftz=True, overflow="saturate_finite"):
        return fs.matmul(x, y, accumulate="fp16"), fs.sum(x, accumulate="bf16"), fs.matmul(x, y)


def _seeded_context(name: str) -> Any:
    x, y = pair(fs.BF16, fs.BF16, (16, 24), (24, 20), "easy", name)
    with fs.context(rounding="stochastic", seed=fs.RandomStream(5), random_bits=16):
        return fs.matmul(x, y, accumulate="bf16"), fs.matmul(x, y, accumulate="bf16"), fs.sum(x, 0, accumulate="fp16")


def _stochastic_parts(name: str) -> Any:
    """Only some roundings of a call are stochastic."""
    x, y = pair(fs.FP16, fs.FP16, (9, 40), (40, 20), "easy", name)
    inner = fs.Blocked(fs.Sequential("bf16", rounding="stochastic"), 8, "fp32")
    mixed = fs.Sequential("fp16", product="bf16", product_rounding="stochastic")
    return (
        fs.matmul(x, y, accumulate=inner, seed=3), fs.matmul(x, y, accumulate=mixed, seed=3),
        fs.matmul(x, y, accumulate="fp32", format="bf16", result_rounding="stochastic", seed=3),
        fs.matmul(x, y, accumulate="fp32", alpha=0.3, rounding="stochastic", seed=3),
    )  # fmt: skip


def _ndarrays(name: str) -> Any:
    x = codes(fs.FP32, (20, 30), "easy", name).codes.view(np.float32)
    y = codes(fs.FP16, (30, 10), "easy", f"{name}/b").codes.view(np.float16)
    z = codes(fs.FP64, (30, 10), "easy", f"{name}/c").codes.view(np.float64)
    return fs.matmul(x, y), fs.matmul(x, z), fs.sum(x), fs.sum(y, 0), fs.mean(z, 1), fs.cumsum(y, 0), fs.matmul(y.T, y)


def _operators(name: str) -> Any:
    x, y = pair(fs.FP16, fs.FP16, (6, 8), (8, 5), "easy", name)
    return x @ y, np.matmul(x, y), np.sum(x, axis=0), x.mean(), x.var(axis=1), x.prod(axis=0), x.cumsum(axis=1)


def _vdot(name: str) -> Any:
    x, y = pair(fs.BF16, fs.FP16, (40,), (40,), "spread", name)
    return fs.vdot(x, y), fs.vdot(x, y, accumulate="kahan(bf16)")


def _texts(name: str) -> Any:
    """Descriptions as text."""
    x, y = pair(fs.FP16, fs.FP16, (8, 70), (70, 18), "easy", name)
    texts = (
        "blocked(fp16, 16, fp32)", "splitk(4, sequential(bf16, fused), pairwise(fp32))", "strided(fp16, 8)",
        "kahan(bf16)", "neumaier(tf32)", "exact(fp16)", "pairwise(fp16, numpy)", "sequential(fp16, product=fp32)",
    )  # fmt: skip
    return tuple(fs.matmul(x, y, accumulate=text) for text in texts)


def _where(name: str) -> Any:
    """Places of events: `fs.record(where=True)`."""
    x, y = (codes(fs.FP16, (60,), "edges", f"{name}/{side}") for side in "ab")
    with fs.record(where=True, keep=4) as log:
        fs.multiply(x, y)
        fs.add(x, y)
        fs.divide(x, y)
        fs.sum(x, accumulate="fp16", format="e4m3")
    found = [
        (event.operation, event.kind, event.index, [float(value).hex() for value in (*event.operands, event.result)])
        for event in log.where
    ]
    return np.frombuffer(repr(found).encode(), np.uint8)


def _some_events(name: str) -> Any:
    x, y = pair(fs.FP16, fs.FP16, (5, 40), (40, 17), "high", name)
    with fs.record(events=["overflow", "nan"]) as log:
        result = fs.matmul(x, y, accumulate="fp16")
    return result, *(np.asarray(log.first[event], np.int64) for event in sorted(log.first))


_CALLS = {
    "context": _in_context, "context-stream": _seeded_context, "stochastic-parts": _stochastic_parts,
    "ndarrays": _ndarrays, "operators": _operators, "vdot": _vdot, "texts": _texts,
}  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield from _matmuls()
    yield from _main_matmuls()
    yield from _large_matmuls()
    yield from _exact_matmuls()
    yield from _dots()
    yield from _with_c()
    yield from _sums()
    yield from _scans()
    yield from _masks()
    for name, call in _CALLS.items():
        yield Case(f"calls/{name}", call)
    yield Case("calls/where", _where, records=False)
    yield Case("calls/some-events", _some_events, records=False)
