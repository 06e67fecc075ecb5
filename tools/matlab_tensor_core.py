"""Run the MATLAB models of AMD's matrix cores under GNU Octave, and compare them with floatsim's.

Usage: python tools/matlab_tensor_core.py CLONE [--rows 1500] [--only MI300MC:bf16]. CLONE is a git clone of
github.com/north-numerical-computing/MATLAB-tensor-core (F. A. Khattak and M. Mikaitis, BSD 2-Clause License). Nothing
of it is part of floatsim. The results are written to tests/tensorcore/matlab_tensor_core.json: for each model and
format the SHA-256 of all results, and the results that differ. The models handle bits as text: 30 to 100 dot products
a second.

Octave needs four functions that MATLAB has: `fma` and `string`; `bitshift` with shifts of 64 bits and more; and
`cpfloat`, whose roundings the operands do not need. The models of CDNA 3 are deleted in the newest commit, so they come
from the last one that has them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import floatsim as fs

COMMIT = "b12b5a700957655375a1b0c1d0c26e76065da015"
COMMIT_OF_CDNA3 = "b4bf135325e3d6ac811db245dd44650383eb0dd3"
FILES = {
    "models/MI100MC.m": COMMIT, "models/MI210MC.m": COMMIT, "models/tools/GEMM.m": COMMIT,
    "models/tools/Generic_BFMA_TC.m": COMMIT, "models/MI300MC.m": COMMIT_OF_CDNA3,
}  # fmt: skip
CASES = {
    ("MI100MC", "fp16"): ("fp16", "tensorcore(cdna1, mfma.16x16x4)"),
    ("MI100MC", "bf16"): ("bf16", "tensorcore(cdna1, mfma.16x16x2)"),
    ("MI210MC", "fp16"): ("fp16", "tensorcore(cdna2, mfma.16x16x4)"),
    ("MI210MC", "bf16"): ("bf16", "tensorcore(cdna2, mfma.16x16x4)"),
    ("MI300MC", "fp16"): ("fp16", "tensorcore(cdna3, mfma.32x32x8)"),
    ("MI300MC", "bf16"): ("bf16", "tensorcore(cdna3, mfma.32x32x8)"),
    ("MI300MC", "tf32"): ("tf32", "tensorcore(cdna3, mfma.32x32x4.xf32)"),
    ("MI300MC", "fp8-e4m3"): ("e4m3fnuz", "tensorcore(cdna3, mfma.32x32x16)"),
    ("MI300MC", "fp8-e5m2"): ("e5m2fnuz", "tensorcore(cdna3, mfma.32x32x16)"),
}
"""The format and the description in floatsim of each model and format of the toolbox."""
OUT = Path(__file__).parents[1] / "tests" / "tensorcore" / "matlab_tensor_core.json"
NAN = 0x7FC00000

FUNCTIONS = {
    "fma": "function d = fma(a, b, c)\nd = single(a) * single(b) + single(c);  % the callers pass b = 1\nend\n",
    "string": "function s = string(x)\ns = cellstr(x);\nend\n",
    "cpfloat": "function x = cpfloat(x, options)\nend\n",
    "bitshift": (
        "function y = bitshift(x, n)\nif isempty(x) || isempty(n)\n  y = x;\n  return\nend\nn = double(n);\n"
        "y = builtin('bitshift', x, max(min(n, 63), -63));\ny(abs(n) > 63 & true(size(y))) = 0;\nend\n"
    ),
}
DRIVER = """\
args = argv(); model = str2func(args{1}); k = str2double(args{3});
f = fopen('operands', 'r'); x = fread(f, [2 * k + 1, Inf], 'double'); fclose(f);
n = columns(x); d = zeros(1, n, 'single'); failed = zeros(1, n, 'uint8');
for i = 1:n
  try
    d(i) = model(1, x(1:k, i)', x(k+1:2*k, i), 1, x(2*k+1, i), args{2});
  catch
    failed(i) = 1;
  end
end
f = fopen('results', 'w'); fwrite(f, d, 'single'); fclose(f);
f = fopen('failed', 'w'); fwrite(f, failed, 'uint8'); fclose(f);
"""


def operands(informat: str, model: str, rows: int) -> list[np.ndarray]:
    """Return a, b, c and floatsim's results, as codes."""
    fmt, accumulate = CASES[model, informat]
    unit = fs.testing.hardware_unit("dot", fmt, accumulate=accumulate)
    return unit.vectors(rows, seed=0)


def canonical(codes: np.ndarray) -> np.ndarray:
    """Return FP32 codes with one NaN and one zero: neither the NaN's bits nor the zero's sign is modelled."""
    x = codes.view(np.float32)
    return np.where(np.isnan(x), np.uint32(NAN), np.where(x == 0, np.uint32(0), codes))


def digest(codes: np.ndarray) -> str:
    """Return the SHA-256 of FP32 codes as little-endian bytes."""
    return hashlib.sha256(codes.astype("<u4").tobytes()).hexdigest()


def run(folder: Path, model: str, informat: str, rows: int) -> dict[str, Any]:
    """Return the record of one model and format."""
    a, b, c, ours = operands(informat, model, rows)
    fmt = CASES[model, informat][0]
    values = [np.asarray(fs.from_codes(x, f).values, float) for x, f in ((a, fmt), (b, fmt), (c, "fp32"))]
    np.concatenate([values[0], values[1], values[2][:, None]], axis=1).tofile(folder / "operands")
    command = ["octave-cli", "--no-gui", "-q", "driver.m", model, informat, str(a.shape[1])]
    subprocess.run(command, cwd=folder, check=False, capture_output=True)
    theirs = canonical(np.fromfile(folder / "results", np.uint32))
    failed = np.fromfile(folder / "failed", np.uint8) != 0
    differs = np.flatnonzero((theirs != canonical(ours)) & ~failed)
    (folder / "results").unlink()
    return {
        "model": model, "format": informat, "rows": rows, "failed": np.flatnonzero(failed).tolist(),
        "sha256": digest(theirs[~failed]), "different": {int(i): int(theirs[i]) for i in differs},
    }  # fmt: skip


def main() -> None:
    """Write the records of all models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--only", help="MODEL:FORMAT, whose record alone is replaced")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, commit in FILES.items():
            shown = subprocess.run(
                ["git", "-C", given.clone, "show", f"{commit}:{file}"], check=True, capture_output=True
            )
            text = shown.stdout.decode().replace("ceff(late_partial_sum==1) = 0\n", "ceff(late_partial_sum==1) = 0;\n")
            (folder / Path(file).name).write_text(text, encoding="utf-8")
        for function, text in {**FUNCTIONS, "driver": DRIVER}.items():
            (folder / f"{function}.m").write_text(text, encoding="utf-8")
        version = subprocess.run(["octave-cli", "--version"], check=True, capture_output=True, text=True).stdout
        old = json.loads(OUT.read_text(encoding="utf-8"))["results"] if OUT.exists() else []
        records = {(row["model"], row["format"]): row for row in old}
        for model, informat in CASES:
            if given.only not in (None, f"{model}:{informat}"):
                continue
            found = records[model, informat] = run(folder, model, informat, given.rows)
            print(model, informat, given.rows, "rows,", len(found["failed"]), "failed,", len(found["different"]),
                  "differ", flush=True)  # fmt: skip
            content = {
                "source": "https://github.com/north-numerical-computing/MATLAB-tensor-core",
                "license": "BSD 2-Clause, Copyright (c) 2025, Faizan A. Khattak and Mantas Mikaitis",
                "commit": COMMIT, "commit_of_cdna3": COMMIT_OF_CDNA3, "octave": version.splitlines()[0],
                "results": list(records.values()),
            }  # fmt: skip
            OUT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
