"""What an H200 returned on 2026-11-27: its recordings are replayed, and its throughput is in the documentation.

`tools/on_device.sh` recorded 43 matrix instructions and 121 operations of CUDA cores. The folder is neither in the
wheel nor in the sdist; the tests of it are skipped there.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim.hardware.questions import emulated_device, to_capture
from floatsim.hardware.tables.datasheets import peak
from floatsim.hardware.tables.ptx_matrix import variants
from floatsim.tensorcore.instructions import Evidence
from tests import marks
from tests.hardware import questions
from tests.hardware.expected_rates import MOST, least_share
from tests.marks import cases

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "hardware.md"
FOLDER = ROOT / "data" / "silicon" / "nvidia-h200"
FILES = sorted(FOLDER.glob("*.npz"))
BEGIN, END = "<!-- rates: begin (python tests/hardware/test_replay.py) -->\n", "\n<!-- rates: end -->"
pytestmark = marks.needs_sample(FOLDER)


def facts(name: str) -> dict:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


QUICK_FILES = [path for path in FILES if path.name.startswith(("wgmma", "convert-fp32-e4", "convert-fp32-e5"))]


@pytest.mark.parametrize("path", cases(quick=QUICK_FILES, full=FILES), ids=lambda path: path.stem)
def test_recordings_are_replayed(path):
    """Every bit, but those of NaN in FP64 and in operations of CUDA cores."""
    (checked,) = fs.hardware.check_silicon(path)
    assert checked.comparison.equal, str(checked.comparison)
    header = checked.capture.header
    assert header["card"] == "NVIDIA H200"
    assert (header["compute_capability"], header["driver"], header["driver_cuda"]) == ("9.0", "580.159.04", "13.0")
    assert header["compiler"] == "NVRTC 13.0"
    assert header["date"].startswith("2026-11-27")
    assert len(header["cubin_sha256"]) == 64


def test_everything_that_the_gpu_has_is_recorded():
    headers = [json.loads(str(np.load(path)["header"])) for path in FILES]
    scalars = {header["operation"] for header in headers if header["kind"] == "scalar"}
    dots = [header for header in headers if header["kind"] == "dots"]
    expected = to_capture(emulated_device("hopper"))
    assert scalars == {str(each.row) for each in expected if hasattr(each, "row")}
    recorded = {tuple(header[key] for key in ("instruction", "a", "b", "d")) for header in dots}
    units = [each.unit for each in expected if hasattr(each, "variant")]
    assert recorded == {(unit.name, unit.a.name, unit.b.name, unit.output.name) for unit in units}
    assert (len(scalars), len(dots), len(FILES)) == (121, 43, 164)
    assert {header["rows"] for header in dots} == {20_000}
    assert sum(path.stat().st_size for path in FILES) < 8 << 20


def test_the_rows_that_the_project_verified_on_gpus():
    architectures = fs.tensorcore.ARCHITECTURES.values()
    verified = {a.name for a in architectures for row in a.instructions if row.evidence is Evidence.PROJECT}
    assert {name for name in verified if fs.tensorcore.ARCHITECTURES[name].processor == "GPU"} == {"hopper"}
    rows = fs.tensorcore.ARCHITECTURES["hopper"].instructions
    assert {(row.evidence, row.gpus) for row in rows} == {(Evidence.PROJECT, "H200")}
    recorded = {path.stem for path in FILES}
    for row in rows:
        for a in row.inputs:
            for b in row.inputs if row.mixes else (a,):
                names = (row.name, a.name, b.name, row.output.name)
                assert "-".join(names).lower() in recorded
        assert not row.truncates or f"{row.name}-fp32-fp32-fp32" in recorded


def test_further_dot_products_of_every_instruction():
    """The counts of `compare` with other seeds, by instruction."""
    jobs = facts("compared.json")["jobs"]
    assert set(jobs) == {str(v) for v in variants() if v.model((9, 0)) is not None and v.kernel.runs_on((9, 0))}
    assert sum(rows for rows, _ in jobs.values()) == 248_000_000
    assert {wrong for _, wrong in jobs.values()} == {0}


# -- questions for a GPU that is not there yet -------------------------------------------------------------------------


@pytest.mark.parametrize("pair", range(4))
def test_the_models_of_blackwell_differ_on_every_question(pair):
    """The second model is mmaemu's for B200, written from floatsim's parts."""
    make, x = questions.maker(), questions.asked(pair)
    halves, then_c, block = (model(pair, x) for model in make.MODELS)
    assert len(x.c) == make.ROWS == 256
    assert (halves != then_c).all()
    three = (halves != block) & (then_c != block)
    assert three.sum() > 100
    assert three[: three.sum()].all()
    assert all(np.isfinite(d.view(np.float32)).all() for d in (halves, then_c, block))
    assert len({(a.tobytes(), b.tobytes(), int(c)) for a, b, c in zip(*x[:3], strict=True)}) > 200


@pytest.mark.full
def test_the_questions_are_those_of_their_script():
    assert np.array_equal(questions.maker().questions(), np.load(questions.FOLDER / "questions.npy"))


# -- throughput --------------------------------------------------------------------------------------------------------


def share(rate: dict) -> float | None:
    return rate["data_sheet_tflops"] and rate["tflops"] / rate["data_sheet_tflops"]


def test_the_expected_throughput_was_reached():
    """Products without matrix units are far below the data sheet of these. By compute type, not by a lower bound."""
    rates = facts("rates.json")["rates"]
    assert len({rate["what"] for rate in rates}) == len(rates) == 48
    shares = {rate["what"]: share(rate) for rate in rates}
    for what, found in shares.items():
        assert found is None or least_share(what) < found < MOST, what
    slow = {what for what, found in shares.items() if found is not None and found < 0.05}
    assert slow == {
        what for what in shares if what.endswith(("32f_pedantic", "16f_pedantic")) and " FP32 x" not in what
    }


def test_the_data_sheet_is_that_of_the_table():
    by_name = {str(v): v for v in variants()}
    for rate in facts("rates.json")["rates"]:
        variant = by_name.get(rate["what"])
        if variant is not None and rate["data_sheet_tflops"] is not None:
            assert peak("NVIDIA H200", variant.a, variant.output)[0] == rate["data_sheet_tflops"]


def table() -> str:
    """Return the table of the page: the measurements in the order in which they were made."""
    rows = [("", "TFLOP/s", "data sheet", "share")]
    for rate in facts("rates.json")["rates"]:
        sheet, found = rate["data_sheet_tflops"], share(rate)
        name, comma, compute = rate["what"].partition(", ")
        rows.append((
            f"`{name}`{comma}{compute}", f"{rate['tflops']:,.1f}", "" if sheet is None else f"{sheet:,g}",
            "" if found is None else f"{100 * found:.0f} %",
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ("---",) * 4, *rows[1:]))


def test_the_table_of_the_page():
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == table(), "run `python tests/hardware/test_replay.py` to rewrite the table"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}", encoding="utf-8")
