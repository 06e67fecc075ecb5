"""The policy "native" against PyTorch's own bits: the share of equal results and gradients, by function and module.

Each row has the call, the reason why not all results are equal, and for FP32, FP16 and BF16 the share of equal results
and the share of equal gradients. A row without a reason is equal in all bits; a NaN equals a NaN. None: PyTorch has no
such kernel or gradient, or the result is one sum. The operands have zeros of both signs, infinities, NaN, tiny and
huge numbers. PyTorch 2.13 computed the shares with one thread on a processor with AVX2.
"""

# ruff: noqa: E501  # one line for each row

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

import floatsim.torch as ft  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.full]
F, nn = torch.nn.functional, torch.nn
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# -- reasons -----------------------------------------------------------------------------------------------------------

EXACT = ""
SCALAR = "PyTorch's loop ends with scalar code, which treats NaN, zeros or contractions in another way than vectors"
FUNCTION = "floatsim rounds functions correctly; PyTorch's differ by a few ulps, and at infinities, by processor"
SUM = "PyTorch adds in an order of its own, which depends on the vector width, or in FP64, or with 16-bit sums"
SLACK = {EXACT: 0.0, SCALAR: 0.02, FUNCTION: 0.3, SUM: 0.6}
"""The part of a share that another processor may lack: other vector widths, other functions of MKL and oneDNN."""
EQUAL, NONE = (1, 1, 1), (None, None, None)


def lowest(share, reason):
    """The lowest share on any processor: all if there is no reason."""
    if reason == EXACT:
        return share
    return max(share * (1 - SLACK[reason]), 1 - 3 * (1 - share) - 0.02)


class Row(NamedTuple):
    """A function of operands."""

    call: Any
    reason: str = EXACT
    results: tuple = EQUAL
    gradients: tuple = EQUAL


class Layer(NamedTuple):
    """A module and the shapes of its inputs, or its indices."""

    make: Any
    inputs: Any
    reason: str = EXACT
    results: tuple = EQUAL
    gradients: tuple = EQUAL


# -- operands ----------------------------------------------------------------------------------------------------------

SIZE = 1003  # with a part beside the vector registers
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-7, -6e-8, 1e5, -300.0, 6e4)


def normal(seed, scale=3.0):
    return np.random.default_rng(seed).standard_normal(SIZE) * scale


def operands(dtype):
    """x and y with all pairs of special values, z, positive p, u between -1 and 1, and matrices m and n."""
    x, y = normal(0), normal(1)
    n = len(SPECIAL)
    x[: n * n], y[: n * n] = np.repeat(SPECIAL, n), np.tile(SPECIAL, n)
    x[-9:], y[-9:] = SPECIAL[:9], SPECIAL[:9][::-1]
    numbers = {"x": x, "y": y, "z": normal(2), "p": np.abs(normal(3)) + 0.01, "u": np.tanh(normal(4, 1.0)) * 0.999}
    numbers |= {"m": normal(5, 1.0).reshape(17, 59), "n": normal(6, 1.0).reshape(17, 59)}
    return SimpleNamespace(
        **{key: torch.from_numpy(each.astype(np.float32)).to(dtype) for key, each in numbers.items()}
    )


def seeded(shape, dtype, seed=9):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).to(dtype)


def images(m):
    return m[:16, :56].reshape(2, 8, 7, 8)


def channels(m):
    return m[:16].reshape(2, 8, 59)


INDICES, IMAGES, PLANE = torch.tensor([[1, 0, 4, 2], [3, 3, 0, 1]]), (2, 4, 9, 8), (8, 128)

# -- the rows ----------------------------------------------------------------------------------------------------------

# fmt: off
FUNCTIONS = {
    "add": Row(lambda o: o.x + o.y),
    "add number": Row(lambda o: o.x + 0.1),
    "add large number": Row(lambda o: o.x + 1e6),
    "add 0-dim": Row(lambda o: o.x + torch.tensor(0.1)),
    "add alpha": Row(lambda o: torch.add(o.x, o.y, alpha=0.3)),
    "add int": Row(lambda o: o.x + 3),
    "add f64 0-dim": Row(lambda o: o.x + torch.tensor(0.1, dtype=torch.float64)),
    "sub": Row(lambda o: o.x - o.y),
    "sub number": Row(lambda o: o.x - 0.1),
    "rsub number": Row(lambda o: 0.1 - o.x),
    "rsub alpha": Row(lambda o: torch.rsub(o.x, 1.7, alpha=0.3)),
    "rsub tensor": Row(lambda o: torch.rsub(o.x, o.y)),
    "sub 0-dim": Row(lambda o: torch.tensor(0.1) - o.x),
    "mul": Row(lambda o: o.x * o.y),
    "mul number": Row(lambda o: o.x * 0.1),
    "mul 0-dim": Row(lambda o: o.x * torch.tensor(0.1)),
    "mul big": Row(lambda o: o.x * 1e6),
    "div": Row(lambda o: o.x / o.y),
    "div number": Row(lambda o: o.x / 0.1),
    "div 0-dim": Row(lambda o: o.x / torch.tensor(0.1)),
    "number div": Row(lambda o: 0.1 / o.x),
    "0-dim div": Row(lambda o: torch.tensor(0.1) / o.x),
    "div trunc": Row(lambda o: torch.div(o.x, o.y, rounding_mode="trunc")),
    "div floor": Row(lambda o: torch.div(o.x, o.y, rounding_mode="floor")),
    "floordiv number": Row(lambda o: o.x // 0.1, EXACT, EQUAL, NONE),
    "div trunc number": Row(lambda o: torch.div(o.x, 0.1, rounding_mode="trunc")),
    "remainder": Row(lambda o: o.x % o.y),
    "remainder number": Row(lambda o: o.x % 0.1),
    "fmod": Row(lambda o: torch.fmod(o.x, o.y)),
    "fmod number": Row(lambda o: torch.fmod(o.x, 0.1)),
    "reciprocal": Row(lambda o: o.x.reciprocal()),
    "neg": Row(lambda o: -o.x),
    "abs": Row(lambda o: o.x.abs()),
    "floor": Row(lambda o: o.x.floor()),
    "ceil": Row(lambda o: o.x.ceil()),
    "round": Row(lambda o: o.x.round()),
    "round decimals": Row(lambda o: o.x.round(decimals=1)),
    "round decimals -1": Row(lambda o: o.x.round(decimals=-1)),
    "trunc": Row(lambda o: o.x.trunc()),
    "frac": Row(lambda o: o.x.frac()),
    "sign": Row(lambda o: o.x.sign()),
    "copysign": Row(lambda o: torch.copysign(o.x, o.y)),
    "maximum": Row(lambda o: torch.maximum(o.x, o.y)),
    "minimum": Row(lambda o: torch.minimum(o.x, o.y)),
    "fmax": Row(lambda o: torch.fmax(o.x, o.y)),
    "fmin": Row(lambda o: torch.fmin(o.x, o.y)),
    "clamp": Row(lambda o: o.x.clamp(-0.3, 0.4)),
    "clamp min 0": Row(lambda o: o.x.clamp(min=0.0)),
    "clamp max 0": Row(lambda o: o.x.clamp(max=0.0)),
    "clamp_min": Row(lambda o: o.x.clamp_min(0)),
    "clamp tensor": Row(lambda o: torch.clamp(o.x, o.u, o.p)),
    "clamp min tensor": Row(lambda o: torch.clamp_min(o.x, o.y)),
    "clamp max tensor": Row(lambda o: torch.clamp_max(o.x, o.y)),
    "clamp minus0": Row(lambda o: o.x.clamp(min=-0.0)),
    "relu": Row(lambda o: torch.relu(o.x)),
    "relu6": Row(lambda o: F.relu6(o.x), SCALAR, EQUAL, (0.999, 0.999, 0.999)),
    "hardtanh": Row(lambda o: F.hardtanh(o.x, -0.7, 0.3), SCALAR, EQUAL, (0.999, 0.999, 0.999)),
    "leaky_relu": Row(lambda o: F.leaky_relu(o.x, 0.1)),
    "prelu": Row(lambda o: F.prelu(o.x, torch.tensor([0.3], dtype=o.x.dtype))),
    "threshold": Row(lambda o: F.threshold(o.x, 0.1, 0.7)),
    "hardshrink": Row(lambda o: F.hardshrink(o.x, 0.3), SCALAR, EQUAL, (0.999, 0.999, 0.999)),
    "softshrink": Row(lambda o: F.softshrink(o.x, 0.3), SCALAR, (0.999, 0.999, 0.999), (0.999, 0.999, 0.999)),
    "hardsigmoid": Row(lambda o: F.hardsigmoid(o.x)),
    "hardswish": Row(lambda o: F.hardswish(o.x), SCALAR, EQUAL, (0.999, 0.999, 0.999)),
    "softsign": Row(lambda o: F.softsign(o.x)),
    "tanhshrink": Row(lambda o: F.tanhshrink(o.x), FUNCTION, (0.999, 1, 1), (0.998, 1, 1)),
    "nan_to_num": Row(lambda o: torch.nan_to_num(o.x)),
    "square": Row(lambda o: o.x.square()),
    "pow 2": Row(lambda o: o.x**2),
    "pow 3": Row(lambda o: o.x**3),
    "pow -1": Row(lambda o: o.x**-1),
    "pow -2": Row(lambda o: o.x**-2, FUNCTION, EQUAL, (0.985, 1, 1)),
    "pow 0.5": Row(lambda o: o.x**0.5, FUNCTION, (0.924, 1, 1), (0.9, 1, 1)),
    "pow -0.5": Row(lambda o: o.x**-0.5, FUNCTION, (0.882, 1, 1), (0.995, 1, 1)),
    "pow 1": Row(lambda o: o.x**1),
    "pow 0": Row(lambda o: o.x**0),
    "pow 4": Row(lambda o: o.x**4, FUNCTION, (0.98, 1, 1)),
    "pow 1.7": Row(lambda o: o.x**1.7, FUNCTION, (0.992, 1, 1), (0.979, 1, 1)),
    "pow tensor": Row(lambda o: o.p**o.x, FUNCTION, (0.986, 1, 1), (0.957, 1, 1)),
    "number pow": Row(lambda o: 0.3**o.x, FUNCTION, (0.988, 1, 1), (0.989, 1, 1)),
    "2 pow": Row(lambda o: 2**o.x, FUNCTION, (0.989, 1, 1), (0.99, 1, 1)),
    "float_power": Row(lambda o: torch.float_power(o.p, 2)),
    "sqrt": Row(lambda o: o.x.sqrt(), FUNCTION, (0.924, 1, 1), (0.931, 1, 1)),
    "rsqrt": Row(lambda o: o.x.rsqrt(), FUNCTION, (0.882, 1, 1), (0.882, 1, 1)),
    "addcmul": Row(lambda o: torch.addcmul(o.x, o.y, o.z, value=0.3)),
    "addcmul 1": Row(lambda o: torch.addcmul(o.x, o.y, o.z)),
    "addcdiv": Row(lambda o: torch.addcdiv(o.x, o.y, o.z, value=0.3)),
    "addcdiv 1": Row(lambda o: torch.addcdiv(o.x, o.y, o.z)),
    "lerp": Row(lambda o: torch.lerp(o.x, o.y, 0.3)),
    "lerp high": Row(lambda o: torch.lerp(o.x, o.y, 0.7)),
    "lerp tensor": Row(lambda o: torch.lerp(o.x, o.y, o.u)),
    "where": Row(lambda o: torch.where(o.x > 0, o.x, o.y)),
    "where number": Row(lambda o: torch.where(o.x > 0, o.x, 0.1)),
    "masked_fill": Row(lambda o: o.x.masked_fill(o.y > 0, 0.1)),
    "heaviside": Row(lambda o: torch.heaviside(o.x, o.y), EXACT, EQUAL, NONE),
    "hypot": Row(lambda o: torch.hypot(o.x, o.y)),
    "ldexp": Row(lambda o: torch.ldexp(o.x, torch.tensor(3))),
    "nextafter": Row(lambda o: torch.nextafter(o.x, o.y) if o.x.dtype in (torch.float32, torch.bfloat16) else o.x),
    "deg2rad": Row(lambda o: torch.deg2rad(o.x)),
    "rad2deg": Row(lambda o: torch.rad2deg(o.x)),
    "diff": Row(lambda o: torch.diff(o.x)),
    "cast f32": Row(lambda o: o.x.float() * 0.1),
    "cast bf16": Row(lambda o: o.x.bfloat16() * o.y.bfloat16()),
    "mixed f32": Row(lambda o: o.x * o.y.float()),
    "mixed f16 bf16": Row(lambda o: o.x.half() + o.y.bfloat16()),
    "exp": Row(lambda o: o.x.exp(), FUNCTION, (0.996, 1, 1), (0.996, 1, 1)),
    "exp2": Row(lambda o: o.x.exp2(), FUNCTION, (0.955, 1, 1), (0.966, 1, 1)),
    "expm1": Row(lambda o: o.x.expm1(), FUNCTION, (0.999, 1, 1)),
    "log": Row(lambda o: o.x.log(), FUNCTION, (0.972, 1, 1)),
    "log2": Row(lambda o: o.x.log2()),
    "log10": Row(lambda o: o.x.log10(), FUNCTION, (0.999, 1, 1)),
    "log1p": Row(lambda o: o.x.log1p(), FUNCTION, (0.998, 1, 1)),
    "sin": Row(lambda o: o.x.sin(), FUNCTION, (0.967, 0.984, 1), (0.936, 1, 1)),
    "cos": Row(lambda o: o.x.cos(), FUNCTION, (0.93, 1, 1), (0.974, 0.984, 1)),
    "tan": Row(lambda o: o.x.tan(), FUNCTION, (0.839, 1, 1), (0.934, 1, 1)),
    "asin": Row(lambda o: o.u.asin(), FUNCTION, (0.95, 1, 1), (0.822, 0.997, 0.997)),
    "acos": Row(lambda o: o.u.acos(), FUNCTION, (0.908, 1, 1), (0.822, 0.997, 0.997)),
    "atan": Row(lambda o: o.x.atan(), FUNCTION, (0.942, 1, 1)),
    "atan2": Row(lambda o: torch.atan2(o.x, o.y)),
    "sinh": Row(lambda o: o.x.sinh(), FUNCTION, (0.982, 1, 1), (0.996, 1, 1)),
    "cosh": Row(lambda o: o.x.cosh(), FUNCTION, (0.995, 1, 1), (0.982, 1, 1)),
    "tanh": Row(lambda o: o.x.tanh(), FUNCTION, (0.998, 1, 1), (0.998, 1, 1)),
    "asinh": Row(lambda o: o.x.asinh(), FUNCTION, (0.753, 1, 1), (0.803, 1, 1)),
    "acosh": Row(lambda o: (o.p+1).acosh(), FUNCTION, (0.834, 1, 1), (0.773, 0.997, 0.999)),
    "atanh": Row(lambda o: o.u.atanh(), FUNCTION, (0.995, 1, 1)),
    "erf": Row(lambda o: o.x.erf(), FUNCTION, (0.991, 0.967, 0.968), (0.993, 1, 1)),
    "erfc": Row(lambda o: o.x.erfc(), FUNCTION, (0.924, 1, 1), (0.993, 1, 1)),
    "erfinv": Row(lambda o: o.u.erfinv(), FUNCTION, EQUAL, (0.993, 1, 1)),
    "sigmoid": Row(lambda o: o.x.sigmoid(), FUNCTION, (0.706, 1, 1), (0.762, 1, 1)),
    "logit": Row(lambda o: torch.logit(o.u.abs()), FUNCTION, (0.911, 1, 1)),
    "logaddexp": Row(lambda o: torch.logaddexp(o.x, o.y), FUNCTION, (0.99, 1, 1), (0.997, 1, 1)),
    "xlogy": Row(lambda o: torch.xlogy(o.x, o.p), FUNCTION, (0.999, 1, 1), (0.998, 1, 1)),
    "sinc": Row(lambda o: torch.sinc(o.x), FUNCTION, (0.995, 1, 1), (0.968, 1, 1)),
    "lgamma": Row(lambda o: torch.lgamma(o.p)),
    "digamma": Row(lambda o: torch.digamma(o.p)),
    "i0": Row(lambda o: torch.i0(o.u)),
    "gelu": Row(lambda o: F.gelu(o.x), FUNCTION, (0.298, 0.935, 0.941), (0.35, 0.894, 0.984)),
    "gelu tanh": Row(lambda o: F.gelu(o.x, approximate="tanh"), FUNCTION, (0.987, 0.995, 0.993), (0.713, 0.993, 0.993)),
    "silu": Row(lambda o: F.silu(o.x), FUNCTION, (0.767, 0.983, 0.983), (0.669, 1, 1)),
    "mish": Row(lambda o: F.mish(o.x), FUNCTION, (0.716, 0.983, 0.983), (0.654, 1, 1)),
    "softplus": Row(lambda o: F.softplus(o.x), FUNCTION, (0.87, 1, 1), (0.63, 1, 1)),
    "softplus 2": Row(lambda o: F.softplus(o.x, 2.0, 10), FUNCTION, (0.875, 1, 1), (0.669, 1, 1)),
    "elu": Row(lambda o: F.elu(o.x), FUNCTION, (0.999, 1, 1), (0.968, 0.999, 0.999)),
    "celu": Row(lambda o: F.celu(o.x, 1.3), FUNCTION, (0.956, 1, 1), (0.976, 0.999, 0.999)),
    "selu": Row(lambda o: F.selu(o.x), FUNCTION, (0.999, 1, 1), (0.965, 0.999, 0.999)),
    "logsigmoid": Row(lambda o: F.logsigmoid(o.x), FUNCTION, (0.97, 1, 1), (0.975, 1, 1)),
    "glu": Row(lambda o: F.glu(o.m[:, :58]), FUNCTION, (0.746, 1, 1), (0.77, 1, 1)),
    "mse none": Row(lambda o: F.mse_loss(o.x, o.y, reduction="none")),
    "mse": Row(lambda o: F.mse_loss(o.m, o.n), SUM, (None, 1, 1)),
    "l1 none": Row(lambda o: F.l1_loss(o.x, o.y, reduction="none")),
    "huber none": Row(lambda o: F.huber_loss(o.x, o.y, reduction="none", delta=0.7), SCALAR, EQUAL, (0.999, 0.999, 1)),
    "smooth_l1 none": Row(lambda o: F.smooth_l1_loss(o.x, o.y, reduction="none", beta=0.7), SCALAR, EQUAL, (0.998, 1, 1)),
    "smooth_l1 1": Row(lambda o: F.smooth_l1_loss(o.x, o.y, reduction="none")),
    "bce": Row(lambda o: F.binary_cross_entropy(o.u.abs(), o.u.abs(), reduction="none"), FUNCTION, (0.965, 1, 1), (0.92, 1, 1)),
    "bce logits": Row(lambda o: F.binary_cross_entropy_with_logits(o.x, o.u.abs(), reduction="none"), FUNCTION, (0.991, 1, 1), (0.894, 1, 1)),
    "kl": Row(lambda o: F.kl_div(-o.p, o.p, reduction="none")),
    "poisson": Row(lambda o: F.poisson_nll_loss(o.z, o.p, reduction="none"), FUNCTION, (0.994, 1, 1), (0.997, 1, 1)),
    "soft_margin": Row(lambda o: F.soft_margin_loss(o.z, torch.sign(o.y.nan_to_num(1)).detach(), reduction="none"), FUNCTION, (0.983, 1, 1), (0.993, 1, 1)),
    "hinge": Row(lambda o: F.hinge_embedding_loss(o.p, torch.sign(o.z), reduction="none")),
    "margin_ranking": Row(lambda o: F.margin_ranking_loss(o.x, o.y, torch.sign(o.z), reduction="none")),
    "gaussian_nll": Row(lambda o: F.gaussian_nll_loss(o.x, o.y, o.p, reduction="none"), FUNCTION, (0.978, 1, 1)),
    "sum": Row(lambda o: o.m.sum(1), SUM, (0.294, 1, 1)),
    "sum all": Row(lambda o: o.m.sum(), SUM, (None, 1, 1)),
    "sum 0": Row(lambda o: o.m.sum(0), SUM, (0.61, 1, 1)),
    "sum f32": Row(lambda o: o.m.sum(1, dtype=torch.float32), SUM, (0.294, 1, 1)),
    "mean": Row(lambda o: o.m.mean(1), SUM, (0.294, 1, 1)),
    "mean f32": Row(lambda o: o.m.mean(1, dtype=torch.float32), SUM, (0.294, 1, 1)),
    "var": Row(lambda o: o.m.var(1), SUM, (0.058, 1, 1), (0.72, 1, 1)),
    "std": Row(lambda o: o.m.std(1), SUM, (0.411, 1, 1), (0.357, 1, 1)),
    "norm": Row(lambda o: torch.linalg.vector_norm(o.m, dim=1), SUM, (0.529, 1, 1), (0.608, 1, 1)),
    "norm f32": Row(lambda o: torch.linalg.vector_norm(o.m, dim=1, dtype=torch.float32), SUM, (0.529, 0.411, 0.764), (0.608, 1, 1)),
    "norm 1": Row(lambda o: torch.linalg.vector_norm(o.m, 1, dim=1)),
    "norm inf": Row(lambda o: torch.linalg.vector_norm(o.m, float("inf"), dim=1)),
    "norm 3": Row(lambda o: torch.linalg.vector_norm(o.m, 3, dim=1), SUM, (0.941, 1, 1), (0.941, 1, 1)),
    "norm 0": Row(lambda o: torch.linalg.vector_norm(o.m, 0, dim=1), EXACT, EQUAL, NONE),
    "prod": Row(lambda o: o.m[:, :7].prod(1), SUM, (1, 0.352, 0.235), (0.953, 0.923, 0.912)),
    "prod f32": Row(lambda o: o.m[:, :7].prod(1, dtype=torch.float32), SUM, EQUAL, (0.953, 1, 1)),
    "cumsum": Row(lambda o: o.m.cumsum(1), SUM, (0.355, 1, 1), (0.36, 1, 1)),
    "cumsum f32": Row(lambda o: o.m.cumsum(1, dtype=torch.float32), SUM, (0.355, 0.999, 0.999), (0.36, 1, 1)),
    "cumprod": Row(lambda o: o.m.cumprod(1), SUM, (0.273, 1, 1), (0.257, 1, 1)),
    "cumprod f32": Row(lambda o: o.m.cumprod(1, dtype=torch.float32), SUM, (0.273, 0.319, 0.449), (0.257, 1, 0.999)),
    "logsumexp": Row(lambda o: o.m.logsumexp(1), SUM, (0.647, 0.764, 0.941), (0.655, 0.775, 0.942)),
    "softmax": Row(lambda o: o.m.softmax(1), SUM, (0.206, 1, 1), (0.192, 1, 1)),
    "softmax f32": Row(lambda o: o.m.softmax(1, dtype=torch.float32), SUM, (0.206, 0.394, 0.284), (0.192, 1, 1)),
    "log_softmax": Row(lambda o: o.m.log_softmax(1), SUM, (0.808, 0.812, 0.82), (0.659, 0.906, 0.901)),
    "log_softmax f32": Row(lambda o: o.m.log_softmax(1, dtype=torch.float32), SUM, (0.808, 0.724, 0.87), (0.659, 1, 1)),
    "softmin": Row(lambda o: F.softmin(o.m, 1), SUM, (0.313, 1, 1), (0.301, 1, 1)),
    "nansum": Row(lambda o: o.m.nansum(1), SUM, (0.294, 1, 1)),
    "amax": Row(lambda o: o.m.amax(1)),
    "max": Row(lambda o: o.m.max(1).values),
    "logcumsumexp": Row(lambda o: o.m.logcumsumexp(1), SUM, EQUAL, (0.955, 1, 1)),
    "trace": Row(lambda o: o.m.trace(), SUM, (None, 1, 1)),
    "nanmean": Row(lambda o: o.m.nanmean(1), SUM, (0.294, 1, 1)),
    "median": Row(lambda o: o.m.median(1).values),
    "norm fro": Row(lambda o: o.m.norm(), SUM, (None, 1, 1), (0.375, 1, 1)),
    "renorm": Row(lambda o: o.m.renorm(2, 0, 3.0), SUM, (0.561, 1, 1)),
    "cdist": Row(lambda o: torch.cdist(o.m, o.n), EXACT, (1, None, None), (1, None, None)),
    "dist": Row(lambda o: torch.dist(o.m, o.n), SUM, (None, 1, 1), (None, 1, 1)),
    "cosine_similarity": Row(lambda o: F.cosine_similarity(o.m, o.n), SUM, (0.117, 1, 1), (0.323, 1, 1)),
    "normalize": Row(lambda o: F.normalize(o.m), SUM, (0.58, 1, 1), (0.483, 1, 1)),
    "mm": Row(lambda o: o.m @ o.n.T, SUM, (0.297, 1, 1), (0.414, 0.999, 1)),
    "bmm": Row(lambda o: torch.bmm(o.m[None], o.n.T[None]), SUM, (0.297, 1, 1), (0.414, 0.999, 1)),
    "addmm": Row(lambda o: torch.addmm(o.m[0, :17], o.m, o.n.T, beta=0.5, alpha=0.3), SUM, (0.207, 1, 1), (0.435, 0.999, 1)),
    "mv": Row(lambda o: o.m @ o.n[0], SUM, (0.235, 1, 1)),
    "dot": Row(lambda o: torch.dot(o.m[0], o.n[0]), SUM, (None, 1, 1)),
    "outer": Row(lambda o: torch.outer(o.m[0], o.n[0]), SUM, EQUAL, (0.952, 1, 1)),
    "einsum": Row(lambda o: torch.einsum("ij,kj->ik", o.m, o.n), SUM, (0.297, 1, 1), (0.414, 0.999, 1)),
    "linear": Row(lambda o: F.linear(o.m, o.n, o.m[:, 0]), SUM, (0.325, 1, 1), (0.412, 0.999, 1)),
    "bilinear": Row(lambda o: F.bilinear(o.m[:, :5], o.n[:, :5], o.m[:3, :25].reshape(3, 5, 5))),
    "addr": Row(lambda o: torch.addr(o.m, o.m[:, 0], o.n[0]), SCALAR, (0.953, 1, 1), (0.993, 1, 1)),
    "baddbmm": Row(lambda o: torch.baddbmm(o.m[:1, :17][None], o.m[None], o.n.T[None]), SUM, (0.321, 1, 1), (0.411, 0.999, 1)),
    "sdpa": Row(lambda o: F.scaled_dot_product_attention(o.m[:8, :32].reshape(1, 2, 4, 32), o.n[:8, :32].reshape(1, 2, 4, 32), o.n[:8, 1:33].reshape(1, 2, 4, 32)), SUM, (0.238, 0.621, 0.621), (0.783, 0.895, 0.875)),
    "cross": Row(lambda o: torch.cross(o.m[:, :3], o.n[:, :3], dim=1)),
    "kron": Row(lambda o: torch.kron(o.m[:3, :3], o.n[:3, :3]), SUM, EQUAL, (0.995, 1, 1)),
    "embedding": Row(lambda o: F.embedding(torch.tensor([1, 0, 4]), o.m)),
    "embedding_bag": Row(lambda o: F.embedding_bag(torch.tensor([[1, 0, 4]]), o.m, mode="mean")),
    "index_add": Row(lambda o: o.m.index_add(0, torch.tensor([1, 1, 3]), o.n[:3]), SUM, (0.976, 1, 1)),
    "scatter_add": Row(lambda o: o.m.scatter_add(1, torch.tensor([[1, 1, 3]]), o.n[:1, :3])),
    "scatter_reduce": Row(lambda o: o.m.scatter_reduce(1, torch.tensor([[1, 1, 3]]), o.n[:1, :3], "mean")),
    "layer_norm": Row(lambda o: F.layer_norm(o.m, (59,), o.n[0], o.n[1]), SUM, (0.536, 1, 1), (0.585, 0.774, 0.791)),
    "rms_norm": Row(lambda o: F.rms_norm(o.m, (59,), o.n[0]), SUM, (0.494, 1, 1), (0.66, 1, 1)),
    "group_norm": Row(lambda o: F.group_norm(channels(o.m), 4, o.n[0, :8], o.n[1, :8]), SUM, (0.423, 1, 1), (0.636, 0.875, 0.849)),
    "batch_norm": Row(lambda o: F.batch_norm(o.m, None, None, o.n[0], o.n[1], True), SUM, (0.527, 0.783, 0.765), (0.624, 0.816, 0.784)),
    "batch_norm eval": Row(lambda o: F.batch_norm(o.m, o.n[0].detach(), o.n[1].abs().detach(), o.n[0], o.n[1]), SUM, (0.501, 1, 1), (0.766, 1, 1)),
    "instance_norm": Row(lambda o: F.instance_norm(channels(o.m)), SUM, (0.32, 0.675, 0.606), (0.329, 0.73, 0.651)),
    "local_response_norm": Row(lambda o: F.local_response_norm(channels(o.m), 3), SUM, EQUAL, (1, 0.999, 1)),
    "conv1d": Row(lambda o: F.conv1d(channels(o.m), o.n[:4, :24].reshape(4, 8, 3), o.n[0, :4]), SUM, (0.214, 1, 1), (0.639, 0.789, 0.789)),
    "conv2d": Row(lambda o: F.conv2d(images(o.m), o.n[:4, :32].reshape(4, 8, 2, 2)), SUM, (0.208, 0.997, 1), (0.669, 0.798, 0.802)),
    "conv_transpose2d": Row(lambda o: F.conv_transpose2d(images(o.m), o.n[:8, :16].reshape(8, 4, 2, 2), stride=2), SUM, (0.518, 1, 1), (0.637, 0.985, 0.986)),
    "max_pool2d": Row(lambda o: F.max_pool2d(images(o.m), 2)),
    "avg_pool2d": Row(lambda o: F.avg_pool2d(images(o.m), 3, 2, 1), SUM, EQUAL, (1, 0.778, 0.798)),
    "avg_pool1d": Row(lambda o: F.avg_pool1d(o.m, 3)),
    "adaptive_avg_pool2d": Row(lambda o: F.adaptive_avg_pool2d(images(o.m), 3), SUM, (0.916, 1, 1), (0.831, 0.758, 0.746)),
    "adaptive_avg_pool1d": Row(lambda o: F.adaptive_avg_pool1d(o.m, 5), SUM, EQUAL, (1, 0.973, 0.98)),
    "lp_pool1d": Row(lambda o: F.lp_pool1d(o.m, 2, 3), SUM, (0.823, 1, 1), (0.815, 1, 0.997)),
    "lp_pool2d": Row(lambda o: F.lp_pool2d(images(o.m), 2, 2), SUM, (0.864, 1, 1), (0.813, 1, 1)),
    "bilinear up": Row(lambda o: F.interpolate(images(o.m), scale_factor=2, mode="bilinear"), SUM, (0.573, 0.57, 0.579), (0.549, 0.649, 0.628)),
    "nearest up": Row(lambda o: F.interpolate(images(o.m), scale_factor=2)),
    "bicubic": Row(lambda o: F.interpolate(images(o.m), scale_factor=2, mode="bicubic")),
    "grid_sample": Row(lambda o: F.grid_sample(images(o.m), o.u[:2*5*5*2].view(2, 5, 5, 2), align_corners=False)),
    "pixel_shuffle": Row(lambda o: F.pixel_shuffle(images(o.m), 2)),
    "pad": Row(lambda o: F.pad(o.m, (1, 1), "reflect")),
    "cross_entropy": Row(lambda o: F.cross_entropy(o.m, torch.arange(17)), SUM, (None, 1, None), (0.755, 0.816, 0.822)),
    "cross_entropy smooth": Row(lambda o: F.cross_entropy(o.m, torch.arange(17), label_smoothing=0.1), SUM, (None, 1, None), (0.012, 0.816, 0.822)),
    "nll": Row(lambda o: F.nll_loss(o.m, torch.arange(17)), SUM, (1, None, None)),
    "multi_margin": Row(lambda o: F.multi_margin_loss(o.m, torch.arange(17)), SUM, NONE, (1, None, None)),
    "multilabel_margin": Row(lambda o: F.multilabel_margin_loss(o.m[:, :3], torch.tensor([[0, 2, -1]]*17)), SUM, NONE, (1, None, None)),
    "multilabel_soft": Row(lambda o: F.multilabel_soft_margin_loss(o.m, (o.n > 0).to(o.m.dtype)), FUNCTION, (None, 1, 1), (0.964, 1, 1)),
    "triplet": Row(lambda o: F.triplet_margin_loss(o.m, o.n, o.m.flip(0)), SUM, EQUAL, (0.667, 1, 1)),
    "cosine_emb": Row(lambda o: F.cosine_embedding_loss(o.m, o.n, torch.ones(17)), SUM, (None, 1, 1), (0.396, 1, 1)),
    "ctc": Row(lambda o: F.ctc_loss(o.m.float().log_softmax(1)[:, None], torch.tensor([[1, 2, 3]]), torch.tensor([17]), torch.tensor([3])), SUM, EQUAL, (0.123, 0.997, 0.999)),
}
LAYERS = {
    "Linear": Layer(lambda: nn.Linear(16, 8), (4, 16), SUM, (0.437, 1, 1), (0.64, 0.995, 1)),
    "Bilinear": Layer(lambda: nn.Bilinear(4, 4, 3), [(5, 4), (5, 4)], SUM, EQUAL, (0.989, 1, 1)),
    "Conv1d": Layer(lambda: nn.Conv1d(4, 6, 3), (2, 4, 9), SUM, (0.309, 1, 1), (0.4, 0.746, 0.7)),
    "Conv2d": Layer(lambda: nn.Conv2d(4, 6, 3, padding=1), IMAGES, SUM, (0.197, 0.998, 1), (0.174, 0.486, 0.486)),
    "Conv3d": Layer(lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4), SUM, (0.345, 1, 1), (0.396, 0.703, 0.731)),
    "ConvTranspose1d": Layer(lambda: nn.ConvTranspose1d(4, 3, 2, 2), (2, 4, 9), SUM, (0.703, 0.74, 0.824), (0.494, 0.898, 0.939)),
    "ConvTranspose2d": Layer(lambda: nn.ConvTranspose2d(4, 3, 2, 2), IMAGES, SUM, (0.67, 0.673, 0.675), (0.342, 0.972, 0.976)),
    "MaxPool2d": Layer(lambda: nn.MaxPool2d(2), IMAGES),
    "AvgPool1d": Layer(lambda: nn.AvgPool1d(3), (2, 4, 9)),
    "AvgPool2d": Layer(lambda: nn.AvgPool2d(2), IMAGES),
    "AdaptiveAvgPool2d": Layer(lambda: nn.AdaptiveAvgPool2d(3), IMAGES, SUM, (0.875, 1, 1), (0.822, 0.786, 0.828)),
    "AdaptiveMaxPool2d": Layer(lambda: nn.AdaptiveMaxPool2d(3), IMAGES),
    "LPPool2d": Layer(lambda: nn.LPPool2d(2, 2), IMAGES, SUM, (0.859, 1, 1), (0.822, 1, 1)),
    "MaxPool1d": Layer(lambda: nn.MaxPool1d(2), (2, 4, 9)),
    "BatchNorm1d": Layer(lambda: nn.BatchNorm1d(4), (8, 4), SUM, (0.593, 0.625, 0.562), (0.525, 0.575, 0.7)),
    "BatchNorm2d": Layer(lambda: nn.BatchNorm2d(4), IMAGES, SUM, (0.375, 0.654, 0.748), (0.419, 0.647, 0.696)),
    "BatchNorm2d eval": Layer(lambda: nn.BatchNorm2d(4).eval(), IMAGES, SUM, EQUAL, (0.991, 1, 1)),
    "LayerNorm": Layer(lambda: nn.LayerNorm(16), (4, 16), SUM, (0.5, 1, 1), (0.364, 0.625, 0.656)),
    "RMSNorm": Layer(lambda: nn.RMSNorm(16), (4, 16), SUM, (0.593, 1, 1), (0.5, 1, 1)),
    "GroupNorm": Layer(lambda: nn.GroupNorm(2, 4), IMAGES, SUM, (0.484, 0.998, 1), (0.304, 0.666, 0.815)),
    "InstanceNorm2d": Layer(lambda: nn.InstanceNorm2d(4, affine=True), IMAGES, SUM, (0.328, 0.703, 0.618), (0.412, 0.712, 0.636)),
    "LocalResponseNorm": Layer(lambda: nn.LocalResponseNorm(2), IMAGES, EXACT, (1, None, None), (1, None, None)),
    "Embedding": Layer(lambda: nn.Embedding(5, 6), INDICES),
    "EmbeddingBag": Layer(lambda: nn.EmbeddingBag(5, 6, mode="sum"), INDICES),
    "LSTM": Layer(lambda: nn.LSTM(6, 5), (3, 2, 6), SUM, (0.333, 1, 1), (0.145, 1, 1)),
    "GRU": Layer(lambda: nn.GRU(6, 5), (3, 2, 6), SUM, (0.366, 1, 1), (0.246, 1, 1)),
    "RNN": Layer(lambda: nn.RNN(6, 5), (3, 2, 6), SUM, (0.733, 1, 1), (0.92, 1, 1)),
    "LSTMCell": Layer(lambda: nn.LSTMCell(6, 5), (2, 6), SUM, (0.6, 1, 1), (0.735, 1, 1)),
    "GRUCell": Layer(lambda: nn.GRUCell(6, 5), (2, 6), SUM, (0.8, 1, 1), (0.671, 1, 1)),
    "MultiheadAttention": Layer(lambda: nn.MultiheadAttention(8, 2), [(3, 2, 8)]*3, SUM, (0.229, 1, 1), (0.247, 1, 1)),
    "TransformerEncoderLayer": Layer(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (3, 2, 8), SUM, (0.354, 0.791, 0.645), (0.158, 0.429, 0.277)),
    "TransformerDecoderLayer": Layer(lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), [(3, 2, 8)]*2, SUM, (0.333, 0.833, 0.645), (0.143, 0.355, 0.247)),
    "ReLU": Layer(nn.ReLU, PLANE),
    "ReLU6": Layer(nn.ReLU6, PLANE),
    "LeakyReLU": Layer(lambda: nn.LeakyReLU(0.1), PLANE),
    "PReLU": Layer(nn.PReLU, PLANE, SUM, EQUAL, (0.999, 1, 1)),
    "RReLU eval": Layer(lambda: nn.RReLU().eval(), PLANE),
    "ELU": Layer(nn.ELU, PLANE, FUNCTION, EQUAL, (0.972, 1, 1)),
    "CELU": Layer(lambda: nn.CELU(1.3), PLANE, FUNCTION, (0.923, 1, 1), (0.971, 1, 1)),
    "SELU": Layer(nn.SELU, PLANE, FUNCTION, EQUAL, (0.972, 1, 1)),
    "GELU": Layer(nn.GELU, PLANE, FUNCTION, (0.235, 0.999, 0.999), (0.27, 0.823, 0.959)),
    "GELU tanh": Layer(lambda: nn.GELU("tanh"), PLANE, FUNCTION, (0.993, 1, 1), (0.826, 1, 1)),
    "SiLU": Layer(nn.SiLU, PLANE, FUNCTION, (0.715, 1, 1), (0.625, 1, 1)),
    "Mish": Layer(nn.Mish, PLANE, FUNCTION, (0.707, 1, 1), (0.672, 1, 1)),
    "Sigmoid": Layer(nn.Sigmoid, PLANE, FUNCTION, (0.722, 1, 1), (0.798, 1, 1)),
    "Tanh": Layer(nn.Tanh, PLANE),
    "Softplus": Layer(nn.Softplus, PLANE, FUNCTION, (0.814, 1, 1), (0.556, 1, 1)),
    "Softshrink": Layer(nn.Softshrink, PLANE),
    "Hardshrink": Layer(nn.Hardshrink, PLANE),
    "Hardtanh": Layer(nn.Hardtanh, PLANE),
    "Hardsigmoid": Layer(nn.Hardsigmoid, PLANE),
    "Hardswish": Layer(nn.Hardswish, PLANE),
    "Softsign": Layer(nn.Softsign, PLANE),
    "Tanhshrink": Layer(nn.Tanhshrink, PLANE),
    "LogSigmoid": Layer(nn.LogSigmoid, PLANE, FUNCTION, (0.947, 1, 1), (0.962, 1, 1)),
    "Threshold": Layer(lambda: nn.Threshold(0.1, 0.2), PLANE),
    "GLU": Layer(nn.GLU, PLANE, FUNCTION, (0.755, 1, 1), (0.775, 1, 1)),
    "Softmax": Layer(lambda: nn.Softmax(1), PLANE, SUM, (0.118, 1, 1), (0.149, 0.999, 1)),
    "LogSoftmax": Layer(lambda: nn.LogSoftmax(1), PLANE, SUM, (0.724, 0.88, 0.91), (0.726, 0.956, 0.968)),
    "Softmin": Layer(lambda: nn.Softmin(1), PLANE, SUM, (0.083, 1, 1), (0.135, 1, 1)),
    "Upsample nearest": Layer(lambda: nn.Upsample(scale_factor=2), IMAGES),
    "Upsample bilinear": Layer(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES, SUM, (0.543, 0.56, 0.57), (0.506, 0.592, 0.565)),
    "PixelShuffle": Layer(lambda: nn.PixelShuffle(2), IMAGES),
    "Flatten": Layer(nn.Flatten, IMAGES),
    "ZeroPad2d": Layer(lambda: nn.ZeroPad2d(1), IMAGES),
    "ReflectionPad2d": Layer(lambda: nn.ReflectionPad2d(1), IMAGES, SUM, EQUAL, (0.994, 0.996, 0.991)),
    "ReplicationPad2d": Layer(lambda: nn.ReplicationPad2d(1), IMAGES, SUM, EQUAL, (1, 0.989, 0.98)),
    "Unfold": Layer(lambda: nn.Unfold(2), IMAGES, SUM, EQUAL, (1, 0.796, 0.802)),
    "Fold": Layer(lambda: nn.Fold((4, 4), 2), (2, 12, 9), SUM, (1, 0.895, 0.916)),
    "CosineSimilarity": Layer(nn.CosineSimilarity, [(6, 9)]*2, SUM, (0.333, 1, 1), (0.824, 1, 1)),
    "PairwiseDistance": Layer(nn.PairwiseDistance, [(6, 9)]*2),
    "MSELoss": Layer(nn.MSELoss, [(6, 9)]*2),
    "L1Loss": Layer(nn.L1Loss, [(6, 9)]*2, SUM, (None, 1, 1)),
    "SmoothL1Loss": Layer(nn.SmoothL1Loss, [(6, 9)]*2, SUM, (None, 1, 1)),
    "HuberLoss": Layer(nn.HuberLoss, [(6, 9)]*2, SUM, (None, 1, 1)),
    "BCEWithLogitsLoss": Layer(nn.BCEWithLogitsLoss, [(6, 9)]*2, SUM, EQUAL, (0.833, 1, 1)),
    "KLDivLoss": Layer(lambda: nn.KLDivLoss(reduction="batchmean", log_target=True), [(6, 9)]*2, SUM, (None, 1, 1)),
    "SoftMarginLoss": Layer(nn.SoftMarginLoss, [(6, 9)]*2, SUM, (None, 1, 1), (0.981, 1, 1)),
    "PoissonNLLLoss": Layer(nn.PoissonNLLLoss, [(6, 9)]*2),
    "TripletMarginLoss": Layer(nn.TripletMarginLoss, [(6, 9)]*3),
}
# fmt: on


# -- the comparison ----------------------------------------------------------------------------------------------------

_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def equal_bits(found, wanted):
    """Which elements have equal bits, or are NaN in both."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if not found.dtype.is_floating_point:
        return found == wanted
    one, two = (x.detach().contiguous().view(_INTEGERS[x.element_size()]) for x in (found, wanted))
    return (one == two) | (found.isnan() & wanted.isnan())


def assert_share(found, wanted, share, reason):
    equal = torch.cat([equal_bits(one, two).reshape(-1) for one, two in zip(found, wanted, strict=True)])
    if share is not None:
        assert equal.double().mean() >= lowest(share, reason), f"{equal.double().mean():.3f} for {share}"


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def result_of(row, dtype):
    return [row.call(operands(dtype))]


def gradients_of(row, dtype):
    given = operands(dtype)
    for each in vars(given).values():
        each.requires_grad_()
    y = row.call(given)
    y.backward(seeded(tuple(y.shape), y.dtype))
    return [each.grad for each in vars(given).values() if each.grad is not None]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    row, place = FUNCTIONS[name], DTYPES.index(dtype)
    for compute, shares in ((result_of, row.results), (gradients_of, row.gradients)):
        try:
            wanted = compute(row, dtype)
        except (RuntimeError, NotImplementedError):
            assert shares[place] is None  # PyTorch has no such kernel or gradient
            continue
        with ft.emulate("native"):
            found = compute(row, dtype)
        if wanted:
            assert_share(found, wanted, shares[place], row.reason)


def trained(row, dtype):
    """The output of a module, and the gradients of its inputs and parameters."""
    torch.manual_seed(0)
    model = row.make().to(dtype)
    shapes = row.inputs if isinstance(row.inputs, list) else [row.inputs]
    is_loss = isinstance(model, nn.modules.loss._Loss)
    given = (
        [INDICES] if row.inputs is INDICES else [seeded(each, dtype, [7, i, *each]) for i, each in enumerate(shapes)]
    )
    for i, each in enumerate(given):
        if each.is_floating_point() and (i == 0 or not is_loss):
            each.requires_grad_()
    y = model(*given)
    y = y[0] if isinstance(y, tuple) else y
    y.backward(seeded(tuple(y.shape), dtype))
    return [y], [x.grad for x in (*given, *model.parameters()) if x.grad is not None]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_modules(name, dtype):
    row, place = LAYERS[name], DTYPES.index(dtype)
    try:
        wanted = trained(row, dtype)
    except (RuntimeError, NotImplementedError):
        assert row.results[place] is None
        return
    with ft.emulate("native"):
        found = trained(row, dtype)
    for one, two, shares in zip(found, wanted, (row.results, row.gradients), strict=True):
        assert_share(one, two, shares[place], row.reason)


def test_the_table_is_large_and_mostly_exact():
    """A row without a reason has no share below all."""
    rows = [*FUNCTIONS.values(), *LAYERS.values()]
    assert len(FUNCTIONS) >= 200 and len(LAYERS) >= 75
    exact = [row for row in rows if row.reason == EXACT]
    assert len(exact) >= 145
    assert all(share in (None, 1) for row in exact for share in (*row.results, *row.gradients))
