"""The claims: verdicts as in the sources, flips with other constants, and the command."""

from __future__ import annotations

import json

import pytest

import floatsim as fs
from studies.claims import __main__ as command
from studies.claims.claim import VERDICTS
from studies.claims.table import CLAIMS, check_claims

VERDICTS_OF_THE_SOURCES = {
    "TRUE": [4, 6, 11, 12, 14, 15, 16, 17, 20, 21, 24, 26, 28, 29, 30, 33, 37, 45, 46, 48, 49, 50, 52, 53, 55, 58, 61,
             70, 74],
    "FALSE": [1, 2, 3, 5, 7, 9, 18, 23, 25, 31, 32, 34, 35, 38, 40, 41, 42, 44, 51, 57, 59, 65, 71],
    "MISLEADING": [8, 10, 13, 19, 22, 27, 39, 43, 47, 54, 60, 63, 66, 67, 72, 73, 75, 76],
    "PARTLY TRUE": [36, 62],
    "OUTDATED": [64, 69],
    "UNVERIFIED": [56],
    "UNSUPPORTED": [68],
}  # fmt: skip
"""Verdicts that were reached with sources, and with NumPy and ml_dtypes."""


def test_all_claims_are_listed():
    assert list(CLAIMS) == list(range(1, 77))
    assert sorted(n for numbers in VERDICTS_OF_THE_SOURCES.values() for n in numbers) == list(CLAIMS)
    for number, claim in CLAIMS.items():
        assert claim.number == number
        assert "notes" not in claim.text + claim.reason
        assert claim.text.endswith(".")
        assert (claim.check is None) == bool(claim.reason)
        assert bool(claim.constants) == (claim.check is not None)


def test_at_least_45_claims_are_computed():
    assert sum(claim.check is not None for claim in CLAIMS.values()) >= 45


@pytest.mark.full
def test_verdicts():
    table = check_claims()
    found = {verdict: [v.claim.number for v in table.verdicts if v.verdict == verdict] for verdict in VERDICTS}
    assert found == VERDICTS_OF_THE_SOURCES
    assert table.counts == {verdict: len(numbers) for verdict, numbers in VERDICTS_OF_THE_SOURCES.items()}
    for each in table.verdicts:
        assert len(each.measured) > 10


FLIPS = {
    1: ({"least": 1.18e-38}, "TRUE"), 3: ({"least": 9.18e-41}, "TRUE"), 4: ({"largest": 3.5e38}, "FALSE"),
    5: ({"least": 6.1e-5}, "TRUE"), 6: ({"least": 5.96e-8}, "FALSE"), 7: ({"limit": 2.98e-8}, "TRUE"),
    8: ({"largest": 65505.0}, "FALSE"), 9: ({"gradient": 1e-8}, "TRUE"), 10: ({"number": 1e-8}, "TRUE"),
    11: ({"largest": 65536.0}, "FALSE"), 12: ({"bf16": (7, 8)}, "FALSE"), 13: ({"formats": ("fp16", "e4m3")}, "FALSE"),
    14: ({"largest": 240.0}, "FALSE"), 15: ({"least": 1.5e-5}, "FALSE"), 16: ({"largest": 3.6e38}, "FALSE"),
    17: ({"bf16": 3}, "FALSE"), 18: ({"value": 0.0078}, "TRUE"), 19: ({"bits": 15}, "FALSE"),
    20: ({"tiny": 1e-3}, "FALSE"), 21: ({"update": 1e-3}, "FALSE"), 22: ({"exponent": -11}, "TRUE"),
    23: ({"exponent": -12}, "TRUE"), 24: ({"update": 1e-6}, "FALSE"), 25: ({"gradient": 1e-21}, "TRUE"),
    26: ({"gradient": 1e-3}, "FALSE"), 27: ({"gradient": 200.0}, "FALSE"), 28: ({"gradient": 300.0}, "FALSE"),
    30: ({"gradient": 2e19}, "FALSE"), 31: ({"format": "fp16"}, "TRUE"), 33: ({"scaled": 3.3e38}, "FALSE"),
    34: ({"scale": 1.0}, "TRUE"), 35: ({"factor": 6e10}, "TRUE"), 37: ({"window": 1000}, "FALSE"),
    38: ({"update": 1e-2}, "TRUE"),
    39: ({"eps": 1e-6}, "FALSE"), 40: ({"raised": 0.99}, "TRUE"), 41: ({"gradient": 1e-6}, "TRUE"),
    44: ({"inputs": (-10.0, -100.0)}, "TRUE"), 45: ({"deviation": 0.5}, "FALSE"), 46: ({"exponent": 1.0}, "FALSE"),
    47: ({"deviation": 2.0}, "FALSE"), 51: ({"architecture": "ampere"}, "TRUE"), 52: ({"half": 28.0}, "FALSE"),
    53: ({"masters": None}, "FALSE"), 54: ({"saving": 0.9}, "FALSE"), 55: ({"fp8": 0.5}, "FALSE"),
    58: ({"weights": (1, 128)}, "FALSE"), 60: ({"algorithm": "most_recent"}, "TRUE"), 61: ({"largest": 240.0}, "FALSE"),
    66: ({"limit": 1e-6}, "TRUE"), 67: ({"tolerated": 1e-4}, "TRUE"), 70: ({"share": 0.2}, "FALSE"),
    72: ({"momentum": 0.01}, "FALSE"), 75: ({"accumulate": "fp16"}, "FALSE"), 76: ({"exponent_bits": 5}, "FALSE"),
}  # fmt: skip
QUICK = {1, 9, 14, 34, 52, 60}


@pytest.mark.parametrize("number", [n if n in QUICK else pytest.param(n, marks=pytest.mark.full) for n in FLIPS])
def test_another_constant_flips_the_verdict(number):
    """A check that ignores the claim's constants would not notice."""
    constants, expected = FLIPS[number]
    assert CLAIMS[number].run().verdict != expected
    assert CLAIMS[number].run(**constants).verdict == expected


def test_the_context_changes_nothing():
    with fs.context(rounding="toward_positive", overflow="saturate_finite", ftz=True):
        assert check_claims([7, 9, 11]).verdicts == check_claims([7, 9, 11]).verdicts
        assert [v.verdict for v in check_claims([7, 9, 11]).verdicts] == ["FALSE", "FALSE", "TRUE"]


def test_errors():
    for number in (0, 77):
        with pytest.raises(ValueError, match="numbers must be"):
            check_claims(number)
    with pytest.raises(ValueError, match=r"claim 9 has no constant 'gradeint'; its constants: gradient"):
        check_claims(9, gradeint=1.0)
    with pytest.raises(ValueError, match="need one claim"):
        check_claims([9, 10], gradient=1.0)


def test_claims_do_not_contradict_each_other():
    """exp(1000) overflows in formats with eight exponent bits, so these bits do not prevent every overflow."""
    overflow, eight_bits = check_claims([46, 76]).verdicts
    assert (overflow.verdict, eight_bits.verdict) == ("TRUE", "MISLEADING")
    assert "exp(200) is inf in BF16" in eight_bits.measured
    assert CLAIMS[76].run(exponents=(-1.0, 1.0)).verdict == "TRUE"


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys):
    """Return a function that runs the command: its exit code, its output and its errors."""

    def runs(*arguments):
        try:
            command.main([*map(str, arguments)])
        except SystemExit as done:
            return (done.code, *capsys.readouterr())
        return (0, *capsys.readouterr())

    return runs


def test_command(run):
    code, out, _ = run(9, 56)
    assert code == 0
    assert "FALSE" in out
    assert "0.136 %" in out
    assert "UNVERIFIED (not computed)" in out
    assert "no source is known" in out
    assert "2 claims: 1 FALSE, 1 UNVERIFIED; 1 computed" in out


def test_command_with_json(run):
    code, out, _ = run(9, 14, "--verdict", "true", "--json")
    found = json.loads(out)
    assert code == 0
    assert [each["number"] for each in found["claims"]] == [14]
    assert found["claims"][0]["constants"] == {"largest": 448.0, "least": 0.015625}


@pytest.mark.parametrize(("arguments", "message"), [
    ((99,), "numbers must be from 1 to 76, not 99"), (("--verdict", "maybe"), "invalid choice: 'MAYBE'"),
    (("nine",), "invalid int value: 'nine'"),
])  # fmt: skip
def test_bad_input_of_the_command(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
