"""Notebook 5 with captures, which its stored run does not have."""

from __future__ import annotations

import re

import pytest

jupytext = pytest.importorskip("jupytext")

import floatsim as fs  # noqa: E402
from floatsim.hardware.questions import emulated_device  # noqa: E402
from notebooks import run  # noqa: E402

pytestmark = pytest.mark.full


def shown(monkeypatch, folder):
    """The results of the cells about real GPUs: the table as Markdown, and the names of the notebook."""
    monkeypatch.setenv("FLOATSIM_SILICON", str(folder))
    (path,) = (path for path in run.sources() if path.stem == "05_tensor_cores")
    cells = [cell.source for cell in jupytext.read(path).cells if cell.cell_type == "code"]
    wanted = [cell for cell in cells if cell.startswith("try:") or "FLOATSIM_SILICON" in cell or "on_hopper" in cell]
    assert len(wanted) == 3
    names: dict[str, object] = {}
    for cell in wanted:
        exec(cell, names)
    return names["shown"].data, names


def test_captures_are_replayed_and_drawn(monkeypatch, tmp_path, capsys):
    pytest.importorskip("IPython")
    for asked in ("wgmma.k32 e4m3 e4m3 fp32", "mma.m16n8k16 fp16 fp16 fp32", "convert fp16 to fp32*"):
        fs.hardware.capture(tmp_path, asked, rows=200, device=emulated_device("hopper"))
    table, names = shown(monkeypatch, tmp_path)
    rows = table.splitlines()[2:]
    assert sorted(row.split(" | ", 2)[2] for row in rows) == ["200 | 0 |", "200 | 0 |", "65536 | 0 |"]
    said = capsys.readouterr().out
    got, emulated = re.search(r" returned (0x\w{8}), the emulator (0x\w{8})", said).groups()
    assert got == emulated == f"0x{names['recorded'].code:08X}"
    assert int(re.search(r"compared with the model of Ampere: (\d+) of 200", said)[1]) > 0


@pytest.mark.parametrize(
    ("folder", "words"), [("", "is not set"), ("nowhere", "names .*nowhere, which does not exist")]
)
def test_without_captures_the_text_names_the_missing_folder(monkeypatch, tmp_path, capsys, folder, words):
    pytest.importorskip("IPython")
    text, _ = shown(monkeypatch, tmp_path / folder if folder else "")
    assert re.search(f"No outputs of real GPUs here.*{words}", text)
    assert "No outputs of a Hopper GPU were found." in capsys.readouterr().out
