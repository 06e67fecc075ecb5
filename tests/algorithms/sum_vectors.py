"""Lists of numbers, and the sums that published libraries return for them.

`python tests/algorithms/sum_vectors.py FOLDER` writes sum_vectors.json. FOLDER has the sources of ReproBLAS 2.1.0
(willow-ahrens/ReproBLAS, BSD licence); a C compiler builds the sums of its binned types. The package bitrep 0.5.1 (MIT
or Apache 2.0) is installed. The script needs NumPy only.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "sum_vectors.json"
FOLDS = (2, 3, 4, 6)
COUNT = 240
SOURCES = (
    "dbdadd", "dmdadd", "dmdupdate", "dmddeposit", "dmrenorm", "ddbconv", "ddmconv", "dmindex", "dmindex0", "dindex",
    "dmbins", "dballoc", "dbsize", "dbnum", "dbsetzero", "dmsetzero",
)  # fmt: skip
ENTRY = """
#include <stdlib.h>
#include <binned.h>
double sum_of(int fold, long n, const double *x) {
  double_binned *y = binned_dballoc(fold);
  binned_dbsetzero(fold, y);
  for (long i = 0; i < n; i++) binned_dbdadd(fold, x[i], y);
  double sum = binned_ddbconv(fold, y);
  free(y);
  return sum;
}
"""


def numbers(seed: int) -> np.ndarray:
    """FP64 numbers of eight kinds, from random bits: the same in every version of NumPy."""
    content = hashlib.shake_128(f"sum {seed}".encode()).digest(8 * 161)
    codes = np.frombuffer(content, "<u8")
    count = 1 + int(codes[0] % 160)
    codes = codes[1 : 1 + count]
    x = np.ldexp((codes >> 11).astype(np.int64) - 2.0**52, -52)  # -1 to 1
    y = (codes % 2048).astype(np.int64)
    kinds = [
        x, np.ldexp(x, y - 1024), np.ldexp(x, 1023), np.ldexp(x, -1060), codes.view(np.float64),
        np.concatenate([np.ldexp(x, 40 + seed % 240), np.ldexp(-x, 40 + seed % 240), x]), np.ldexp(x, y % 120 - 60),
        np.ldexp(np.abs(x), 860 + seed % 160),
    ]  # fmt: skip
    found = kinds[seed % 8]
    return found[np.isfinite(found)]


def single(seed: int) -> np.ndarray:
    """FP32 numbers: the high words of the same codes."""
    found = (numbers(seed).view(np.uint64) >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return found[np.isfinite(found)]


def pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands of a dot product, whose products are in the normal range."""
    x = numbers(8 * seed)
    half = x.size // 2
    return np.ldexp(x[:half], seed % 200), x[half : 2 * half]


def digest(values: list[float]) -> str:
    """The SHA-256 digest of FP64 numbers."""
    return hashlib.sha256(np.asarray(values, "<f8").tobytes()).hexdigest()


def main(folder: Path) -> None:
    import bitrep

    with tempfile.TemporaryDirectory() as where:
        entry, library = Path(where) / "entry.c", Path(where) / "sums.so"
        entry.write_text(ENTRY)
        files = [folder / "src" / "binned" / f"{name}.c" for name in SOURCES]
        flags = ["-O2", "-std=gnu99", "-ffp-contract=off", "-shared", "-fPIC", f"-I{folder / 'include'}", f"-I{folder}"]
        subprocess.run(["cc", *flags, "-o", library, entry, *files, "-lm"], check=True)
        binned = ctypes.CDLL(str(library)).sum_of
    binned.restype = ctypes.c_double

    def binned_sum(x: np.ndarray, fold: int) -> float:
        x = np.ascontiguousarray(x)
        return float(binned(fold, ctypes.c_long(x.size), x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))))

    def exact_sum(x: np.ndarray, kind: type) -> float:
        total = kind()
        for value in x.tolist():
            total.add(value)
        return float(total.value())

    seeds = range(COUNT)
    rows = {
        "ReproBLAS 2.1.0, FP64": {
            str(fold): digest([binned_sum(numbers(seed), fold) for seed in seeds]) for fold in FOLDS
        },
        "bitrep 0.5.1": {
            "SumF64": digest([exact_sum(numbers(seed), bitrep.SumF64) for seed in seeds]),
            "SumF32": digest([exact_sum(single(seed), bitrep.SumF32) for seed in seeds]),
            "dot": digest([float(bitrep.dot(*(x.tolist() for x in pairs(seed)))) for seed in seeds]),
        },
    }
    FILE.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
