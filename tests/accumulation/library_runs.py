"""Compare the descriptions of `fs.library_sum` with the libraries themselves.

    python library_runs.py CASE CPU THREADS COUNT

prints, as JSON, the number of compared shapes and the shapes with a different bit. The limits of threads and of
instructions are environment variables, which the libraries read once: test_libraries.py sets them for each run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import floatsim as fs


class Case(NamedTuple):
    """A function of a library with one dtype: `run` calls it, `shape` draws a shape."""

    function: str
    dtype: str
    run: Callable[..., Any]
    shape: Callable[[np.random.Generator], tuple[int, ...]]
    result: str | None = None


def dtype_of(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def bits(x: Any) -> np.ndarray:
    x = np.ascontiguousarray(x)
    return x.view(f"u{x.itemsize}")


def tensor(x: np.ndarray) -> Any:
    import torch

    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def array(x: Any) -> np.ndarray:
    import torch

    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(dtype_of("bfloat16"))
    return x.numpy()


def by_torch(name: str, *operands: np.ndarray) -> np.ndarray:
    import torch

    return array(getattr(torch, name)(*map(tensor, operands)))


def by_jax(preferred: str | None, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    import jax
    import jax.numpy as jnp

    return np.asarray(jax.jit(lambda x, y: jnp.matmul(x, y, preferred_element_type=preferred))(a, b))


def matrices(rng: np.random.Generator) -> tuple[int, ...]:
    most = int(rng.choice([20, 70, 260]))
    m, n = (int(x) for x in rng.integers(2, most, 2))
    return m, n, int(rng.integers(1, rng.choice([40, 500, 1600])))


def small_matrices(rng: np.random.Generator) -> tuple[int, ...]:
    m, n = (int(x) for x in rng.integers(2, rng.choice([18, 60]), 2))
    return m, n, int(rng.integers(1, rng.choice([40, 500, 1025])))


def columns_of_64(rng: np.random.Generator) -> tuple[int, ...]:
    if rng.random() < 0.5:
        return int(rng.integers(2, 100)), 64, int(rng.integers(1, 1600))
    return int(rng.integers(64, 150)), 64 * int(rng.integers(1, 4)), int(rng.integers(1, 1600))


def instructions_of_32(rng: np.random.Generator) -> tuple[int, ...]:
    return 16 * int(rng.integers(1, 5)), 64, 32 * int(rng.integers(1, rng.choice([9, 33])))


def vectors(rng: np.random.Generator) -> tuple[int, ...]:
    n = int(rng.integers(1, rng.choice([140, 1000, 9000])))
    return (n - n % 32 or 32 if rng.random() < 0.3 else n,)


def either(rng: np.random.Generator) -> tuple[int, ...]:
    return vectors(rng) if rng.random() < 0.7 else small_matrices(rng)


def einsum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("k,k->" if a.ndim == 1 else "ik,kj->ij", a, b)


CASES = {
    **{f"numpy.matmul/{t}": Case("numpy.matmul", t, np.matmul, matrices) for t in ("float32", "float64")},
    "numpy.matmul/float16": Case("numpy.matmul", "float16", np.matmul, small_matrices),
    **{f"numpy.dot/{t}": Case("numpy.dot", t, np.dot, vectors) for t in ("float32", "float64", "float16")},
    **{f"numpy.sum/{t}": Case("numpy.sum", t, np.sum, vectors) for t in ("float32", "float64", "float16")},
    **{f"numpy.einsum/{t}": Case("numpy.einsum", t, einsum, either) for t in ("float32", "float64")},
    **{
        f"torch.matmul/{t}": Case("torch.matmul", t, lambda a, b: by_torch("matmul", a, b), matrices)
        for t in ("float32", "float64")
    },
    **{
        f"torch.matmul/{t}": Case("torch.matmul", t, lambda a, b: by_torch("matmul", a, b), small_matrices)
        for t in ("bfloat16", "float16")
    },
    **{
        f"torch.sum/{t}": Case("torch.sum", t, lambda x: by_torch("sum", x), vectors)
        for t in ("float32", "float64", "bfloat16", "float16")
    },
    **{
        f"jax.numpy.matmul/{t}": Case("jax.numpy.matmul", t, lambda a, b: by_jax(None, a, b), columns_of_64)
        for t in ("float32", "bfloat16", "float16")
    },
    "jax.numpy.matmul/bfloat16 to float32": Case(
        "jax.numpy.matmul", "bfloat16", lambda a, b: by_jax("float32", a, b), instructions_of_32, "float32"
    ),
}


def operands(rng: np.random.Generator, case: Case, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Operands whose terms cancel: half of the terms are the negatives of the others, in another order.

    The result is then the sum of the rounding errors alone, which tells orders apart even in narrow formats.
    """
    dtype, k = dtype_of(case.dtype), shape[-1]
    one = case.function.endswith(".sum")
    left, right = ((shape[0], k), (k, shape[1])) if len(shape) == 3 else ((k,), (k,))
    a, b = (rng.standard_normal(each).astype(dtype) for each in (left, right))
    half, order = k // 2, rng.permutation(k // 2)
    if rng.random() < 0.7:
        a[..., half : 2 * half] = -a[..., order]
        b[half : 2 * half] = b[order]
        mixed = rng.permutation(k)
        a, b = a[..., mixed], b[mixed]
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return [a] if one else [a, b]


def described(regions: Any, x: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """The result by the descriptions."""
    fmt = regions[0].format
    if len(x) == 1:
        return np.asarray(fs.sum(x[0], accumulate=regions[0].accumulate, format=fmt))
    a, b = x
    if a.ndim == 1:
        return np.asarray(fs.dot(a, b, accumulate=regions[0].accumulate, format=fmt))
    found = np.zeros(shape[:2], fmt.dtype)
    for region in regions:
        columns = np.ascontiguousarray(b[:, region.columns])
        part = fs.matmul(a[region.rows], columns, accumulate=region.accumulate, format=fmt)
        found[region.rows, region.columns] = part
    return found


def compare(name: str, cpu: str, threads: int, count: int, seed: int = 0) -> tuple[int, list[tuple[int, ...]]]:
    """Return the number of compared shapes, and the shapes with a difference."""
    case, rng, done, wrong = CASES[name], np.random.default_rng([seed, *name.encode()]), 0, []
    while done < count:
        shape = case.shape(rng)
        try:
            regions = fs.library_sum(case.function, case.dtype, shape, cpu=cpu, threads=threads, result=case.result)
        except fs.NotDescribedError:
            continue
        x = operands(rng, case, shape)
        if not np.array_equal(bits(case.run(*x)), bits(described(regions, x, shape))):
            wrong.append(shape)
        done += 1
    return done, wrong


if __name__ == "__main__":
    case_name, cpu_name, number, most = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if case_name.startswith("torch"):
        import torch

        torch.set_num_threads(number)
    print(json.dumps(compare(case_name, cpu_name, number, most)))
