"""The public names: one word for each thing, hints for unknown keywords, and what `dir` and `help` list."""

from __future__ import annotations

import enum
import importlib.util
import inspect
import pickle
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import floatsim as fs
from floatsim._lazy import lazy_exports

MODULES = [name for name in fs.__all__ if isinstance(getattr(fs, name), types.ModuleType)]
X = fs.array([1.0, 2.0], "bf16")

E = fs.array(np.eye(2), "bf16")
NAMES = "binary8p3se", "binary8p1uf"
P = fs.quantization.project_block(X, *NAMES)

PASSED_ON = {
    "fs.dot": lambda **wrong: fs.dot(X, X, **wrong),
    "fs.vdot": lambda **wrong: fs.vdot(X, X, **wrong),
    "fs.einsum": lambda **wrong: fs.einsum("i,i->", X, X, **wrong),
    "fs.quantization.block_dot": lambda **wrong: fs.quantization.block_dot(P, P, "binary8p3se", **wrong),
    "fs.quantization.block_sum": lambda **wrong: fs.quantization.block_sum(P, "binary8p3se", **wrong),
    "fs.quantization.block_product": lambda **wrong: fs.quantization.block_product(P, "binary8p3se", **wrong),
    "fs.quantization.project_block": lambda **wrong: fs.quantization.project_block(X, *NAMES, **wrong),
    "fs.quantization.awq_factors": lambda **wrong: fs.quantization.awq_factors(E, E, **wrong),
    "fs.quantization.best_range": lambda **wrong: fs.quantization.best_range(E, "int8", **wrong),
    "fs.quantization.sign_round": lambda **wrong: fs.quantization.sign_round(E, E, **wrong),
    "fs.hardware.compare": lambda **wrong: fs.hardware.compare(E, E, accumulate="fp32", against=E, **wrong),
    "fs.testing.assert_conversion": lambda **wrong: fs.testing.assert_conversion(X, X, "bf16", **wrong),
    "fs.testing.assert_product": lambda **wrong: fs.testing.assert_product(E, E, E, accumulate="fp32", **wrong),
    "fs.testing.compare_product": lambda **wrong: fs.testing.compare_product(E, E, E, accumulate="fp32", **wrong),
    "fs.sensitivity": lambda **wrong: fs.sensitivity(fs.operators.softmax, X, **wrong),
    "fs.testing.strength": lambda **wrong: fs.testing.strength(lambda case: True, E, E, **wrong),
    "fs.training.as_optimizer": lambda **wrong: fs.training.as_optimizer("sgd", **wrong),
    "fs.training.as_scaling": lambda **wrong: fs.training.as_scaling("current", **wrong),
    "fs.training.compare_policies": lambda **wrong: fs.training.compare_policies(["fp32", "bf16"], **wrong),
    "fs.training.reduce_scatter": lambda **wrong: fs.training.reduce_scatter(E, **wrong),
    "fs.training.update_statistics": lambda **wrong: fs.training.update_statistics(X, X, **wrong),
}  # fmt: skip
"""Calls of functions that pass their keywords on: the function that takes them gives the hint."""


def public() -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every public function and class."""
    for package, module in [("fs", fs), *((f"fs.{name}", getattr(fs, name)) for name in MODULES)]:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{package}.{name}", value


PUBLIC = dict(public())


def signatures(value: Any) -> Iterator[tuple[str, inspect.Signature]]:
    """Yield the signatures of a function, or of a class's constructor and public methods."""
    if inspect.isfunction(value):
        yield "", inspect.signature(value)
        return
    for name, member in inspect.getmembers(value):
        routine = inspect.isroutine(member) and callable(member)  # no cached property, which Python 3.14 calls ours
        plain = routine and (name == "__init__" or not name.startswith("_"))
        if plain and (getattr(member, "__module__", "") or "").startswith("floatsim"):
            yield f".{name}", inspect.signature(member)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_format_is_called_format(name):
    for method, signature in signatures(PUBLIC[name]):
        assert "fmt" not in signature.parameters, f"{name}{method}{signature}"


def test_an_array_is_out_and_a_format_is_result():
    for name, value in PUBLIC.items():
        for method, signature in signatures(value):
            if (out := signature.parameters.get("out")) is not None:
                assert "Format" not in str(out.annotation), f"{name}{method}{signature}"


def hinted() -> list[str]:
    """Return the names of functions and constructors that have keywords of their own.

    The specification, `fs.reference`, is called for every number: its functions are plain. So are the constructors of
    FloatArray and Context, which every call makes. The keywords of `fs.plot.explore`, `fs.explain`
    and `fs.plot.expression_error` are names of the user. TensorCore has an error of its own, which lists its three
    keywords.
    """
    plain = {
        "fs.FloatArray", "fs.Context", "fs.TensorCore", "fs.plot.explore", "fs.datasets.DigitsNetwork", "fs.explain",
        "fs.plot.expression_error", "fs.testing.hardware_unit",
    }  # fmt: skip
    names = []
    for name, value in PUBLIC.items():
        if name in plain or name.startswith("fs.reference."):
            continue
        if inspect.isclass(value):
            own = any("__init__" in vars(each) and each.__module__.startswith("floatsim") for each in value.__mro__)
            if not own or getattr(value, "_is_protocol", False) or issubclass(value, tuple | enum.Enum | Exception):
                continue
        if keyword_of(value) is not None:
            names.append(name)
    return names


def keyword_of(value: Any) -> str | None:
    """Return the last keyword of a function or constructor, or None."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [name for name, each in inspect.signature(value).parameters.items() if each.kind in kinds]
    return known[-1] if known else None


@pytest.mark.parametrize("name", hinted())
def test_an_unknown_keyword_names_the_nearest(name):
    keyword = keyword_of(PUBLIC[name])
    with pytest.raises(TypeError) as error:
        PASSED_ON.get(name, PUBLIC[name])(**{f"{keyword}x": None})
    if name in PASSED_ON:
        assert "unknown keyword" in str(error.value)
    else:
        assert f"unknown keyword '{keyword}x'; did you mean '{keyword}'" in str(error.value)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: fs.matmul(X, X, accumulat="fp16"), "matmul: unknown keyword 'accumulat'; did you mean 'accumulate'"),
    (lambda: fs.quantize(1.0, fmt="bf16"), "quantize: unknown keyword 'fmt'; .*format"),
    (lambda: fs.add(X, X, forma="bf16"), "add: unknown keyword 'forma'; did you mean 'format'"),
    (lambda: fs.quantize_blocks(X, "int8", blok=2), "quantize_blocks: unknown keyword 'blok'; did you mean 'block'"),
    (lambda: fs.Blocked("fp16", evry=8), "Blocked: unknown keyword 'evry'; did you mean 'every'"),
    (lambda: fs.operators.softmax(X, axs=0), "softmax: unknown keyword 'axs'; did you mean 'axis'"),
    (lambda: fs.less(X, X, signalling=True), "less: unknown keyword 'signalling'; did you mean 'signaling'"),
])  # fmt: skip
def test_messages_of_unknown_keywords(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_a_type_error_of_known_keywords_stays():
    with pytest.raises(TypeError, match="mixed formats"):
        fs.add(X, fs.array([1.0, 2.0], "fp16"), format=None)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'format'"):
        fs.quantize(1.0)


def test_public_functions_are_one_object_that_pickles():
    """A function with hints replaces the one in its module: `pickle` finds it by its module and name."""
    for name, value in PUBLIC.items():
        assert pickle.loads(pickle.dumps(value)) is value, name


def test_dir_lists_public_names_only():
    packages = [fs, *(getattr(fs, name) for name in MODULES if hasattr(getattr(fs, name), "_HOMES"))]
    assert len(packages) > 6
    for package in packages:
        others = {name for name in dir(package) if not name.startswith("__")} - set(package.__all__)
        assert others <= ({"torch", "triton"} if package is fs else set()), package.__name__


def test_torch_is_a_lazy_module():
    installed = importlib.util.find_spec("torch") is not None
    assert ("torch" in dir(fs)) is installed
    assert "torch" not in fs.__all__  # `from floatsim import *` works without it
    assert "torch (" in fs.__doc__
    if installed:
        assert fs.torch.__name__ == "floatsim.torch"
    else:
        with pytest.raises(ImportError, match="needs PyTorch"):
            _ = fs.torch


def test_an_optional_module_of_a_missing_library_is_not_listed():
    _, names, listed = lazy_exports("floatsim", {}, modules="plot", optional="no_such_library json")
    assert "json" in names()
    assert "no_such_library" not in names()
    assert listed == ["plot"]


def test_registries_of_formats_and_accumulations():
    assert fs.FORMATS["fp16"] is fs.FP16
    assert tuple(fs.FORMATS.values()) == fs.named_formats()
    assert all(fs.as_format(name) is value for name, value in fs.FORMATS.items())
    assert fs.ACCUMULATIONS["blocked"] is fs.Blocked
    assert {"sequential", "kahan", "exact", "tensorcore", "splitk"} <= set(fs.ACCUMULATIONS)
    for name, kind in fs.ACCUMULATIONS.items():
        assert kind.__name__.lower() == name
        assert getattr(fs, kind.__name__) is kind
    for registry in (fs.FORMATS, fs.ACCUMULATIONS):
        with pytest.raises(TypeError):
            registry["mine"] = None


def test_training_exports_what_users_construct_or_call():
    """Records that only come out of functions are not exported; `SpikeState()` is the start of a policy."""
    records = {"Epoch", "Event", "TrainingRun", "Comparison", "Decision", "TensorStatistics", "MemoryTable"}
    assert not records & set(fs.training.__all__)
    assert isinstance(fs.trace(X, X, accumulate="fp16"), fs.tensorcore.SumTrace)
    assert np.isscalar(fs.training.global_norm({"w": X}).item())
