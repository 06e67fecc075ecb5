"""The pytest plugin: hard inputs as cases of a test, bits in failed comparisons, and a report in JSON or HTML.

The plugin is an entry point of the package, so it is imported in every run of pytest. It therefore imports nothing but
pytest until a test uses it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Case"]

_PROPERTY = "floatsim"


class Case(NamedTuple):
    """The operands of one case: its kind, a (M, K) and b (K, N)."""

    kind: str
    a: Any
    b: Any


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("floatsim", "floatsim: comparisons of kernels, bit by bit")
    group.addoption("--floatsim-json", metavar="FILE", help="write the reports of all comparisons as JSON")
    group.addoption("--floatsim-html", metavar="FILE", help="write the reports of all comparisons as a web page")
    group.addoption("--floatsim-seed", type=int, default=0, metavar="N", help="the seed of hard inputs (default 0)")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and start the collection of reports if a file was requested."""
    config.addinivalue_line(
        "markers",
        "floatsim(shape, formats, kinds=None, result=None): run the test with the fixture floatsim_case for each kind "
        "of hard inputs",
    )
    paths = [config.getoption("--floatsim-json"), config.getoption("--floatsim-html")]
    if any(paths):
        config.pluginmanager.register(_Collected(config), "floatsim-reports")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one case of a test with `floatsim_case` for each kind of hard inputs."""
    if "floatsim_case" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("floatsim")
    if marker is None:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: the fixture floatsim_case needs a marker, as in "
            "@pytest.mark.floatsim(shape=(64, 128, 64), formats='bf16')"
        )
    from floatsim.testing.vectors.product_inputs import KINDS

    metafunc.parametrize("floatsim_case", list(marker.kwargs.get("kinds") or KINDS), indirect=True)


@pytest.fixture
def floatsim_case(request: pytest.FixtureRequest) -> Case:
    """Return the operands of one kind of hard inputs. The marker `floatsim` has the shape and the formats."""
    from floatsim.testing.vectors.product_inputs import hard_inputs

    marker = request.node.get_closest_marker("floatsim")
    names = ("shape", "formats")
    given = {**dict(zip(names, marker.args, strict=False)), **marker.kwargs}
    given.pop("kinds", None)
    if missing := [name for name in names if name not in given]:
        raise pytest.UsageError(f"@pytest.mark.floatsim needs {' and '.join(missing)}")
    seed = request.config.getoption("--floatsim-seed")
    try:
        return Case(request.param, *hard_inputs(**{"seed": seed, **given}, kind=request.param))
    except ValueError as error:
        if marker.kwargs.get("kinds"):
            raise
        pytest.skip(f"{request.param}: {error}")


@pytest.fixture
def floatsim_inputs(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return `fs.testing.hard_inputs` with the seed of the command line."""
    from floatsim.testing.vectors.product_inputs import hard_inputs

    seed = request.config.getoption("--floatsim-seed")

    def inputs(*args: Any, **options: Any) -> Any:
        return hard_inputs(*args, **{"seed": seed, **options})

    return inputs


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: Any, right: Any) -> list[str] | None:
    """Show the bits and the distance of two numbers of a format in a failed comparison."""
    if op not in ("==", "!=") or not (_is_number(left) and _is_number(right)):
        return None
    from floatsim.arrays.elementwise.ulps import ulp_distance
    from floatsim.testing.compare.operands import read_pair

    try:
        x, y = read_pair(left, right)
    except (TypeError, AssertionError):
        return None
    digits = -(-x.format.bits // 4)
    texts = [f"{float(side.values):.9g} = 0x{int(side.codes):0{digits}X}" for side in (x, y)]
    ulps = int(ulp_distance(x, y, equal_nan=True))
    apart = "NaN" if ulps == 2**64 - 1 else f"{ulps} ulp{'s' * (ulps != 1)}"
    return [f"{texts[0]} {op} {texts[1]}", f"{apart} of {x.format.name}"]


def _is_number(x: Any) -> bool:
    """Return whether x is a scalar of NumPy or ml_dtypes, or a FloatArray without dimensions."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(x).__mro__}
    return bool(kinds & {"numpy", "ml_dtypes", "floatsim"}) and getattr(x, "shape", None) == () and hasattr(x, "dtype")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Keep the reports of the comparisons of a test, if a file was requested."""
    if not any(item.config.getoption(option) for option in ("--floatsim-json", "--floatsim-html")):
        return (yield)
    from floatsim.testing.compare.listeners import listening

    def keep(report: Any) -> None:
        item.user_properties.append((_PROPERTY, json.dumps({**report.to_dict(), "text": str(report)})))

    with listening(keep):
        return (yield)


class _Collected:
    """The reports of all tests, those of xdist's workers included; written at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tests: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = [json.loads(str(value)) for name, value in report.user_properties if name == _PROPERTY]
        if report.when == "call" and found:
            self.tests.append({"test": report.nodeid, "outcome": report.outcome, "comparisons": found})

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workerinput"):  # a worker of xdist: the controller writes
            return
        for option, text in (("--floatsim-json", self._json), ("--floatsim-html", self._html)):
            if path := self.config.getoption(option):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(text(), encoding="utf-8")

    def _json(self) -> str:
        return json.dumps({"seed": self.config.getoption("--floatsim-seed"), "tests": self.tests}, indent=2)

    def _html(self) -> str:
        rows = [
            f'<h2 class="{html.escape(test["outcome"])}">{html.escape(test["test"])}: {test["outcome"]}</h2>'
            + "".join(f"<pre>{html.escape(each['text'])}</pre>" for each in test["comparisons"])
            for test in self.tests
        ]
        style = "body{font-family:sans-serif;margin:2em}pre{background:#f1f1f1;padding:1em;overflow:auto}"
        style += ".failed{color:#b00}.passed{color:#070}h2{font-size:1em}"
        failed = sum(test["outcome"] == "failed" for test in self.tests)
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>floatsim</title><style>{style}</style>'
            f"<h1>{len(self.tests)} tests with comparisons, {failed} failed</h1>{''.join(rows)}</html>\n"
        )
