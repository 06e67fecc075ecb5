"""`floatsim twin`: recorded training runs, compared bit by bit, and the causes that are named for injected faults."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: the extra `torch`")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import floatsim as fs  # noqa: E402
import floatsim.torch as ft  # noqa: E402
from floatsim.accumulation import Epilogue, parse  # noqa: E402
from floatsim.torch import devices  # noqa: E402
from floatsim.torch.tensors import read, tensor_of  # noqa: E402
from floatsim.torch.twin.kernels import annotated, kernels_by_module  # noqa: E402
from tests import marks  # noqa: E402
from tests.torch_emulation import recorded_runs as runs  # noqa: E402

pytestmark = [pytest.mark.torch]
needs_sample = marks.needs_sample(runs.SAMPLE)
needs_recordings = pytest.mark.skipif(
    runs.FOLDER is None, reason="FLOATSIM_H200 names the folder of an H200's recordings"
)

MODEL = '''
import torch
from torch import nn


class Net(nn.Module):
    """Two layers, a GELU, and a conversion."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 64)

    def forward(self, x):
        return self.last(self.act(self.first(x))).float()


def build():
    torch.manual_seed(4)
    return Net().half()


def batch(step):
    numbers = torch.Generator().manual_seed(step)
    return torch.randn(64, 32, generator=numbers).half(), torch.randn(64, 64, generator=numbers)


def loss(output, batch):
    return nn.functional.mse_loss(output, batch[1])


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
'''


@pytest.fixture
def model(tmp_path):
    """The path of a MODEL.py."""
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.fixture
def file(model):
    """A recording of the emulated H200, of two steps."""
    path = model.with_name("run.npz")
    ft.record_twin(model, path, device="h200", steps=2)
    return path


# -- recordings of an H200 ---------------------------------------------------------------------------------------------


@needs_sample
@pytest.mark.parametrize("key", [runs.SAMPLED[0], "mlp|fp16|sgd|mse-autocast"])
def test_a_sample_of_a_recorded_run(key):
    with np.load(runs.SAMPLE) as recorded:
        recording = runs.as_recording(key, recorded, 2)
    report = ft.check_twin(recording, runs.definition(key))
    assert report, report
    assert report.codes > 19_000 and not report.unverified and not report.notes


@needs_sample
@pytest.mark.full
def test_the_recording_of_the_notebook():
    """20 steps, all bits, and a policy with another order in one module parts from it."""
    report = ft.check_twin(runs.TWIN)
    assert report and report.codes == 130_660 and not report.unverified and not report.notes
    split = ft.Gemm("bf16", accumulate="splitk(2, hopper, fp32)", backward_accumulate="fp32")
    policy = replace(fs.training.POLICIES["h200"], name="two parts", modules={"3": split})
    parted = ft.check_twin(runs.TWIN, policy=policy)
    assert (str(parted.first.place), parted.first.kind) == ("step3/loss", "unverified")
    assert [row.differing for row in parted.rows if row.part == "updated"] == [0, 0, 7, 63, 255]


@needs_recordings
@pytest.mark.full
@pytest.mark.parametrize(("key", "steps"), {**runs.FORECAST, **runs.OTHERS}.items())
def test_whole_runs(key, steps):
    """0 false names: no difference, nothing unverified."""
    with np.load(Path(runs.FOLDER) / "training" / "train.npz") as recorded:
        hashes = json.loads(str(recorded["meta"]))["init"]
        name = key.split("|")[0]
        for each, x in runs.network(name).state_dict().items():
            assert hashlib.sha256(runs.codes(x).tobytes()).hexdigest() == hashes[f"{name}.{each}"]
        recording = runs.as_recording(key, recorded, steps)
    report = ft.check_twin(recording, runs.definition(key))
    assert report and not report.unverified, report
    assert report.codes > 50_000


@needs_recordings
@pytest.mark.full
@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_every_module_of_a_step(fmt):
    """A step without an optimizer, with the gradient of each module."""
    key = f"mlp|{fmt}|native"
    rng = np.random.default_rng(19)
    x, target = (torch.from_numpy(rng.standard_normal(n).astype(np.float32)) for n in ((32, 64), (32, 10)))
    run = runs.definition(f"mlp|{fmt}|sgd|mse")
    run.batch = lambda step: (x.to(runs.DTYPES[fmt]), target)
    run.loss = lambda y, batch: ((y.float() - batch[1]) ** 2).sum()
    with np.load(Path(runs.FOLDER) / "kernels" / "model_steps.npz") as recorded:
        state = {each: torch.from_numpy(recorded[f"state.{each}|mlp"].view(np.float32))
                 for each in runs.network("mlp").state_dict()}  # fmt: skip
        recording = ft.Recording({"device": "h200", "versions": runs.VERSIONS, "steps": 1})
        for each in recorded.files:
            what, _, rest = each.removesuffix(f"|{key}").partition(".")
            if each.endswith(f"|{key}") and what in runs.PARTS:
                place = ft.Place(0, runs.PARTS[what], rest or "Sequential")
                recording.add(place, runs.tensor(recorded[each], fmt))

    def build():
        network = runs.network("mlp")
        network.load_state_dict(state)
        return network.to(runs.DTYPES[fmt])

    run.build = build
    report = ft.check_twin(recording, run)
    assert report and report.codes >= 35_000, report


# -- faults in a recording of an H200 ----------------------------------------------------------------------------------

TWIN_KEY = runs.SAMPLED[0]


@pytest.fixture(scope="module")
def recorded():
    with np.load(runs.SAMPLE) as content:
        return runs.as_recording(TWIN_KEY, content, 2)


def array_of(recording, name):
    place = ft.Place.parse(name)
    return fs.FloatArray(recording.codes[place], fs.as_format(recording.entries[place].dtype))


def weight_gradient_in_parts(recording):
    """The gradient of the first weights, added in the other direction."""
    x = runs.definition(TWIN_KEY).batch(0)[0]
    found = fs.matmul(array_of(recording, "step0/gradient/0").T, read(x), accumulate="sequential(bf16)", format="bf16")
    return "step0/weight_gradient/0.weight", found


def last_layer_in_two_parts(recording):
    x, weight, bias = (array_of(recording, name) for name in ("step0/forward/2", "initial/3.weight", "initial/3.bias"))
    order = Epilogue(parse("splitk(2, blocked(hopper, 16, bf16), bf16)", fs.FP32), fs.FP32)
    return "step0/forward/3", fs.matmul(x, weight.T, bias, accumulate=order, format="bf16")


def last_layer_toward_zero(recording):
    x, weight, bias = (array_of(recording, name) for name in ("step0/forward/2", "initial/3.weight", "initial/3.bias"))
    wide = fs.add(fs.matmul(x, weight.T, accumulate="hopper", format="fp32"), fs.convert(bias, "fp32"))
    return "step0/forward/3", fs.convert(wide, "bf16", rounding="toward_zero")


def gelu_by_tanh(recording):
    return "step0/forward/1", fs.library_function("gelu_tanh", array_of(recording, "step0/forward/0"))


def gelu_toward_zero(recording):
    exact = F.gelu(torch.from_numpy(array_of(recording, "step0/forward/0").values.astype(np.float64))).numpy()
    return "step0/forward/1", fs.array(exact, "bf16", rounding="toward_zero")


IN_AN_H200 = {
    weight_gradient_in_parts: ("0", "order", "gradient"), last_layer_in_two_parts: ("3", "order", "forward"),
    last_layer_toward_zero: ("3", "cast", "forward"), gelu_by_tanh: ("1", "function", "forward"),
    gelu_toward_zero: ("1", "cast", "forward"),
}  # fmt: skip


@needs_sample
@pytest.mark.parametrize("fault", IN_AN_H200)
def test_faults_in_a_recording_of_an_h200(fault, recorded):
    """One recorded tensor is replaced by another way to compute it. The others are those of the GPU."""
    name, changed = fault(recorded)
    place = ft.Place.parse(name)
    assert (changed.codes != recorded.codes[place]).any()
    copy = ft.Recording(dict(recorded.facts), dict(recorded.entries), dict(recorded.codes))
    del copy.entries[place]
    copy.add(place, tensor_of(changed, torch.bfloat16))
    report = ft.check_twin(copy, runs.definition(TWIN_KEY))
    module, kind, direction = IN_AN_H200[fault]
    assert (report.first.place, report.first.module, report.first.kind) == (place, module, kind), report.first
    assert report.first.direction == direction and report.differing == report.first.differing


# -- clean recordings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["h200", "cpu"])
def test_a_clean_recording(model, device):
    path = model.with_name("run.npz")
    recording = ft.record_twin(model, path, device=device, steps=2)
    report = ft.check_twin(path)  # the model is in the file
    assert report and report.first is None and report.differing == 0 and not report.notes
    assert report.codes == sum(codes.size for codes in recording.codes.values())
    assert [step for step, *_ in report.by_step()] == [-1, 0, 1]
    assert report.to_dict()["equal"] and "all are equal" in str(report)
    parts = {str(place) for place in recording.entries}
    assert {"initial/first.weight", "step1/input/0", "step1/forward/act", "step1/loss", "step1/gradient/first",
            "step1/weight_gradient/last.bias", "step1/updated/first.weight", "step0/forward/Net"} <= parts  # fmt: skip


def test_a_cpu_does_not_have_the_bits_of_an_h200(model):
    path = model.with_name("run.npz")
    ft.record_twin(model, path, device="cpu", steps=1)
    report = ft.check_twin(path, device="h200")
    assert not report and report.first.kind in ft.KINDS and not report.notes


def test_hashes_are_enough(model):
    path = model.with_name("run.npz")
    recording = ft.record_twin(model, path, device="h200", steps=1, largest=64)
    assert not recording.entries[ft.Place(0, "forward", "act")].stored
    assert ft.check_twin(path)
    with faulty("addmm", "last", added_by("sequential(fp32)")):
        report = ft.check_twin(path)
    assert (report.first.place, report.first.differing) == (ft.Place(0, "forward", "last"), None)
    assert report.first.kind == "order" and "its hash differs" in str(report.first)


def test_modules_called_twice_and_with_several_results(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, a, *, b):
            return {"sum": self.layer(a) + self.layer(b), "product": a * b}

    def build():
        torch.manual_seed(0)
        return Twice().bfloat16()

    x = torch.ones(8, 8, dtype=torch.bfloat16)
    run = runs.SimpleNamespace(
        build=build, batch=lambda step: ((x, x / 3),), forward=lambda model, batch: model(batch[0][0], b=batch[0][1]),
        loss=lambda output, batch: output["sum"].float().square().mean(),
        optimizer=torch.optim.Adam,
    )  # fmt: skip
    recording = ft.record_twin(run, tmp_path / "run.npz", device="h200", steps=1)
    places = {str(place) for place in recording.entries}
    assert {"step0/forward/layer", "step0/forward/layer@1", "step0/forward/Twice#1", "step0/input/0.1"} <= places
    assert ft.check_twin(recording, run)


def test_loss_scaling_and_autocast(tmp_path):
    """A GradScaler of the model skips a step whose gradients overflow."""
    run = runs.definition("mlp|fp16|sgd|mse-autocast")
    run.scaler = lambda device: torch.amp.GradScaler(device, init_scale=2.0**30)
    recording = ft.record_twin(run, tmp_path / "run.npz", device="h200", steps=2, autocast="fp16")
    weights = [recording.codes[ft.Place(n, "updated", "0.weight")] for n in (0, 1)]
    assert (weights[0] == recording.codes[ft.Place(-1, "initial", "0.weight")]).all()
    assert ft.check_twin(recording, run)


# -- faults ------------------------------------------------------------------------------------------------------------


class faulty:
    """The emulated device computes an operation of a module in another way."""

    def __init__(self, name, module, change, backward=False):
        self.table, self.name = devices.DEVICES["h200"].handlers, name
        self.own = self.table[name]
        own = self.own

        def run(c, *args, **kwargs):
            chosen = change if c.module == module and c.backward == backward else own
            return chosen(c, *args, **kwargs)

        run.own, self.run = own, run

    def __enter__(self):
        self.table[self.name] = self.run

    def __exit__(self, *error):
        self.table[self.name] = self.own


def added_by(text):
    def change(c, *args):
        *bias, a, b = map(read, args)
        order = parse(text, fs.FP32)
        return fs.matmul(a, b, *bias, accumulate=Epilogue(order, fs.FP32) if bias else order, format=c.formats.out)

    return change


def toward_zero(c, bias, a, b):
    wide = fs.add(fs.matmul(read(a), read(b), accumulate="hopper", format="fp32"), fs.convert(read(bias), "fp32"))
    return fs.convert(wide, c.formats.out, rounding="toward_zero")


def exact_gelu(c, x, approximate="none"):
    return fs.array(F.gelu(torch.from_numpy(read(x).values.astype(np.float64))).numpy(), c.formats.out)


def truncated_gelu(c, x, approximate="none"):
    exact = F.gelu(torch.from_numpy(read(x).values.astype(np.float64))).numpy()
    return fs.array(exact, c.formats.out, rounding="toward_zero")


def tanh_gelu(c, x, approximate="none"):
    return devices.DEVICES["h200"].handlers["gelu"].own(c, x, "tanh")


FAULTS = {
    "forward order": ("addmm", "first", added_by("sequential(fp32)"), False, "order", "forward"),
    "split-K": ("addmm", "last", added_by("splitk(2, hopper, fp32)"), False, "order", "forward"),
    "backward order": ("mm", "last", added_by("permuted(reversed, sequential(fp32))"), True, "order", "gradient"),
    "rounding of a product": ("addmm", "last", toward_zero, False, "cast", "forward"),
    "function": ("gelu", "act", exact_gelu, False, "function", "forward"),
    "formula": ("gelu", "act", tanh_gelu, False, "function", "forward"),
    "rounding of a function": ("gelu", "act", truncated_gelu, False, "cast", "forward"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_module(fault, model):
    """The recording was made with another order, function or rounding in one module."""
    name, module, change, backward, kind, direction = FAULTS[fault]
    path = model.with_name("run.npz")
    with faulty(name, module, change, backward):
        ft.record_twin(model, path, device="h200", steps=3)
    first = ft.check_twin(path).first
    assert (first.module, first.kind, first.direction, first.operation) == (module, kind, direction, name), first
    assert "codes are equal if it is" in first.why and first.found != first.recorded
    assert first.recorded == ft.Recording.read(path).codes[first.place][first.index]


def test_another_cast(model, monkeypatch):
    """The conversion to FP32 at the end flushes numbers below 2^-8 to zero."""
    own = devices.cast

    def flushed(x, result):
        found = own(x, result)
        return found.copy_(torch.where(found.abs() < 2**-8, torch.zeros_like(found), found))

    monkeypatch.setattr("floatsim.torch.emulation.cast", flushed)
    path = model.with_name("run.npz")
    ft.record_twin(model, path, device="h200", steps=1)
    monkeypatch.undo()
    first = ft.check_twin(path).first
    assert (first.module, first.kind, first.operation) == ("Net", "cast", "_to_copy"), first


CONSTANTS = {
    "lr=0.05": "lr=0.1", "momentum=0.9": "momentum=0.95", "momentum=0.9)": "momentum=0.9, weight_decay=0.01)",
    "SGD(parameters, lr=0.05, momentum=0.9)": "Adam(parameters, lr=0.05)",
}  # fmt: skip


@pytest.mark.parametrize("old", CONSTANTS)
def test_another_constant_of_the_optimizer(old, model):
    """The recorded options are compared. Without them, other constants are tried."""
    model.write_text(MODEL.replace(old, CONSTANTS[old]), encoding="utf-8")
    recording = ft.record_twin(model, model.with_name("run.npz"), device="h200", steps=2)
    model.write_text(MODEL, encoding="utf-8")
    report = ft.check_twin(recording, model)
    assert report.first.kind == "optimizer" and report.first.place.part == "updated"
    assert report.first.module in ("first", "last") and "in the recording" in report.first.why
    del recording.facts["optimizer"]
    first = ft.check_twin(recording, model).first
    assert first.kind == "optimizer"
    if "Adam" not in CONSTANTS[old]:
        key, _, value = CONSTANTS[old].rstrip(")").rpartition(" ")[2].partition("=")
        assert f"{key}={value}" in first.why.replace("0.9500000000000001", "0.95"), first.why


def test_another_kernel_of_the_optimizer(model):
    text = MODEL.replace("SGD(parameters, lr=0.05, momentum=0.9)", "AdamW(parameters, lr=0.05)")
    model.write_text(text.replace("lr=0.05)", "lr=0.05, fused=True)"), encoding="utf-8")
    recording = ft.record_twin(model, model.with_name("run.npz"), device="h200", steps=1)
    del recording.facts["optimizer"]
    model.write_text(text, encoding="utf-8")
    first = ft.check_twin(recording, model).first
    assert first.kind == "optimizer" and "fused=True" in first.why


@pytest.mark.parametrize("place", ["initial/last.weight", "step0/forward/act", "step1/updated/first.weight"])
def test_a_flipped_bit_in_the_file(place, file):
    """The hash that was recorded shows it, and so does the place."""
    recording = ft.Recording.read(file)
    recording.codes[ft.Place.parse(place)].reshape(-1)[5] ^= 64
    recording.write(file)
    report = ft.check_twin(file)
    assert (str(report.first.place), report.first.kind, report.first.differing) == (place, "recording", 1)
    assert recording.changed() == [ft.Place.parse(place)] and report.first.found ^ report.first.recorded == 64


def test_another_initial_weight(file, model):
    """One bit of a weight differs before the first step. The rest is compared from the recorded weights on."""
    recording = ft.Recording.read(file)
    model.write_text(MODEL.replace("return Net().half()", "net = Net().half()\n    net.last.weight.data.view("
                                   "torch.int16)[3, 4] ^= 1\n    return net"), encoding="utf-8")  # fmt: skip
    report = ft.check_twin(recording, model)
    assert (report.first.module, report.first.kind, report.first.direction) == ("last", "weights", "initial weights")
    assert report.differing == 1 and report.first.index == (3, 4)


def test_a_bit_that_flips_in_a_weight_during_the_run(tmp_path):
    """A bit of the memory of the recorded GPU changes after step 0, and the run goes on with it."""
    namespace: dict = {}
    exec(MODEL, namespace)
    run, clean = (runs.SimpleNamespace(**{key: namespace[key] for key in ("build", "batch", "loss", "optimizer")})
                  for _ in range(2))  # fmt: skip
    weights = []

    def optimizer(parameters):
        weights.extend(parameters)
        own = namespace["optimizer"](weights)
        own.register_step_post_hook(
            lambda *_: weights[2].data.view(torch.int16)[1, 1].bitwise_xor_(1 << 12) if not weights[4:] else None
        )
        return own

    run.optimizer = optimizer
    recording = ft.record_twin(run, tmp_path / "run.npz", device="h200", steps=1)
    del recording.facts["optimizer"]
    first = ft.check_twin(recording, clean).first
    assert (str(first.place), first.kind, first.index) == ("step0/updated/last.weight", "recording", (1, 1)), first


def test_another_batch(file, model):
    model.write_text(MODEL.replace("manual_seed(step)", "manual_seed(step + (step == 1))"), encoding="utf-8")
    report = ft.check_twin(file, model)
    assert (str(report.first.place), report.first.kind) == ("step1/input/0", "inputs")
    assert all(not row.differing for row in report.rows if row.part != "input")


def test_an_operation_that_was_not_compared(model):
    """K = 1032 has no recorded kernel. The recording adds in two parts, with a tile that is not tried."""
    model.write_text(MODEL.replace("32, 128", "1032, 128").replace("64, 32", "64, 1032"), encoding="utf-8")
    path = model.with_name("run.npz")
    with faulty("addmm", "first", added_by("splitk(2, hopper, fp32, tile=96)")):
        ft.record_twin(model, path, device="h200", steps=1)
    report = ft.check_twin(path)
    assert (report.first.module, report.first.kind) == ("first", "unverified"), report.first
    assert "not recorded" in report.first.why and report.unverified


def test_another_version(file, model):
    """The version is named where no other way of the operation has the recorded codes."""
    recording = ft.Recording.read(file)
    recording.facts |= {"emulated": False, "versions": {"torch": "2.12.1+cu130", "cuda": "13.0"}}
    clean = ft.check_twin(recording)
    assert clean and clean.notes == ["version: the recording is of torch 2.12.1+cu130, and torch 2.11.0 was compared"]
    with faulty("gelu", "act", lambda c, x, approximate="none": fs.multiply(read(x), fs.array(0.5, "fp16"))):
        facts, recording = recording.facts, ft.record_twin(model, file, device="h200", steps=1)
    recording.facts |= {key: facts[key] for key in ("emulated", "versions")}
    first = ft.check_twin(recording).first
    assert (first.module, first.kind) == ("act", "version") and "2.12.1" in first.why


# -- what if ----------------------------------------------------------------------------------------------------------


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).half()


def test_a_policy_may_state_an_order():
    """Of one module and one pass. It is noted, and a strict run refuses it."""
    layer, x = nn.Linear(64, 40, bias=False).half(), normal(32, 64).requires_grad_()
    layer.weight.data = normal(40, 64, seed=2)
    stated = ft.Gemm("fp16", accumulate="sequential(fp16)", backward_accumulate="fp32")
    policy = replace(fs.training.POLICIES["h200"], name="one order", modules={"Linear": stated})
    with ft.emulate(policy, layer) as run:
        y = layer(x)
        y.backward(normal(32, 40, seed=1))
    a, w, g = (fs.FloatArray(runs.codes(each), fs.FP16)
               for each in (x, layer.weight, normal(32, 40, seed=1)))  # fmt: skip
    expected = fs.matmul(a, w.T, accumulate="sequential(fp16)", format="fp16")
    np.testing.assert_array_equal(runs.codes(y), expected.codes)
    assert (expected.codes != fs.matmul(a, w.T, accumulate="hopper", format="fp16").codes).any()
    np.testing.assert_array_equal(runs.codes(x.grad), fs.matmul(g, w, accumulate="hopper", format="fp16").codes)
    ((note, calls),) = run.unverified.items()
    assert (note.operation, calls) == ("mm", 1) and "the policy states the order" in note.why
    with ft.emulate(policy, layer, strict=True), pytest.raises(NotImplementedError, match="states the order"):
        layer(x)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["build", "batch", "loss", "optimizer"])
def test_missing_functions(function, model, run):
    model.write_text(MODEL.replace(f"def {function}(", f"def {function}_("), encoding="utf-8")
    code, _, error = run("twin", "record", model, model.with_name("run.npz"), "--device", "h200")
    assert code == 2 and f"model.py has no function {function}: {function}(" in error


@pytest.mark.parametrize(("old", "new", "message"), [
    ("import torch\n", "import torch, no_such_module\n", "model.py cannot be run: ModuleNotFoundError"),
    ("def build():", "def build(:", "model.py cannot be run: SyntaxError"),
    ("return Net().half()", "return 3", r"build\(\) must return a torch.nn.Module, not int"),
    ("nn.Linear(32, 128)", "nn.Linear(33, 128)", "model.py: the forward pass failed: "),
    ("(output, batch[1])", "(output, batch[2])", r"model.py: loss\(output, batch\) failed: IndexError"),
    ("mse_loss(output, batch[1])", "mse_loss(output, batch[1], reduction='none')", "with one element, not shape"),
    ("torch.optim.SGD(parameters,", "dict(", r"must return an optimizer of torch.optim, not dict"),
    (".half(), torch.randn(64, 64, generator=numbers)", ".half()", r"batch\(0\) must return a tuple"),
], ids=range(8))  # fmt: skip
def test_wrong_definitions(old, new, message, model):
    assert old in MODEL
    model.write_text(MODEL.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        ft.record_twin(model, model.with_name("run.npz"), device="h200", steps=1)


@pytest.mark.parametrize(("words", "message"), [
    ({"device": "h100"}, "device='h100' is not supported; did you mean 'h200'"),
    ({"device": "h200", "steps": 0}, "steps"), ({"device": "h200", "autocast": "fp8"}, "autocast='fp8'"),
    ({"device": "cpu", "autocast": "bf16"}, "autocast is recorded on device='cuda'"),
], ids=range(4))  # fmt: skip
def test_wrong_arguments(words, message, model):
    with pytest.raises(ValueError, match=message):
        ft.record_twin(model, model.with_name("run.npz"), **words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu(model, run):
    code, _, error = run("twin", "record", model, model.with_name("run.npz"))
    assert code == 2 and "needs a GPU" in error and "--device 'h200' records the emulation" in error


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_recordings(share, file):
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"run\.npz is no complete recording"):
        ft.check_twin(file)


def test_damaged_recordings(file):
    """A changed byte in the middle fails the checksum of the file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    with pytest.raises(ValueError, match="is no complete recording"):
        ft.check_twin(file)


def without(key):
    return lambda recording: recording.facts.pop(key)


def other(**facts):
    return lambda recording: recording.facts.update(facts)


def wrong_shape(recording):
    place = ft.Place(-1, "initial", "last.weight")
    recording.codes[place] = recording.codes[place].reshape(-1)


def other_shape(recording):
    place = ft.Place(-1, "initial", "last.weight")
    recording.codes[place] = recording.codes[place].reshape(128, 64)
    recording.entries[place] = recording.entries[place]._replace(shape=(128, 64))


def rename(recording):
    place = ft.Place(0, "forward", "act")
    recording.codes[ft.Place(0, "forward", "other")] = recording.codes.pop(place)
    recording.entries[ft.Place(0, "forward", "other")] = recording.entries.pop(place)


@pytest.mark.parametrize(("change", "message"), [
    (without("device"), "has no 'device'"), (without("versions"), "has no 'versions'"),
    (other(device="NVIDIA A100"), "device 'NVIDIA A100', which is not described; described are cpu, h200"),
    (other(versions={}), "no version of torch"), (other(steps=0), "steps=0"), (other(steps=True), "no 'steps'"),
    (other(autocast="fp4"), "autocast='fp4'"), (other(model={}), "has no text of MODEL.py"),
    (wrong_shape, r"initial/last.weight must be an array of uint16 and of shape \(64, 128\), not .* \(8192,\)"),
    (other_shape, r"last.weight of model.py is float16 of shape \(64, 128\), and in the recording .* \(128, 64\)"),
    (rename, "step0/forward/other, which the run of model.py does not make"),
    (lambda recording: recording.codes.pop(ft.Place(0, "loss")), "the codes of step0/loss are missing"),
    (lambda recording: recording.entries.pop(ft.Place(0, "loss")), "arrays that recording.json does not describe"),
], ids=range(13))  # fmt: skip
def test_wrong_recordings(change, message, file):
    recording = ft.Recording.read(file)
    change(recording)
    recording.write(file)
    with pytest.raises(ValueError, match=message):
        ft.check_twin(file)


def test_other_files_are_no_recordings(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match="is no recording of floatsim twin"):
        ft.check_twin(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"complete recording: it is no whole \.npz file, which is a zip"):
        ft.check_twin(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        ft.check_twin(tmp_path / "y.npz")


# -- the commands ------------------------------------------------------------------------------------------------------


def test_the_commands(model, run, tmp_path):
    path = tmp_path / "run.npz"
    code, out, error = run("twin", "record", model, path, "--device", "h200", "--steps", 2)
    assert (code, error) == (0, "") and "2 steps on NVIDIA H200, emulated" in out
    model.unlink()  # the recording has its text
    code, out, _ = run("twin", "check", path)
    assert code == 0 and out.endswith("in 2 steps on h200: all are equal\n")
    with faulty("addmm", "last", added_by("sequential(fp32)")):
        code, out, _ = run("twin", "check", path)
        assert code == 1
        assert "forward, module last" in out and "likeliest cause: another order of a sum (order)" in out
        code, out, _ = run("twin", "check", path, "--json")
    found = json.loads(out)
    assert code == 1 and not found["equal"]
    assert (found["first"]["module"], found["first"]["kind"]) == ("last", "order")


def test_errors_of_the_commands(file, run):
    assert run("twin", "check", file, "--device", "h100")[0] == 2
    code, out, _ = run("twin", "check", file.with_name("none.npz"), "--json")
    assert code == 2 and "there is no file" in json.loads(out)["error"]["message"]
    assert run("twin")[0] == 2 and run("twin", "check")[0] == 2


# -- kernels of a trace ------------------------------------------------------------------------------------------------


def test_kernels_of_a_trace(tmp_path):
    """A trace of this CPU, where each product is given a launch and a kernel: modules and directions are found."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    with annotated(model), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        F.mse_loss(model(torch.ones(3, 4)), torch.zeros(3, 2)).backward()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    products = [
        each for each in trace["traceEvents"] if each.get("name") in ("aten::addmm", "aten::mm", "aten::mse_loss")
    ]
    for number, each in enumerate(products):
        trace["traceEvents"] += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": each["ts"] + each["dur"] / 2, "dur": 0,
             "tid": each["tid"], "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": each["name"], "ts": 1e18 + each["ts"], "dur": 1, "tid": 7,
             "args": {"correlation": number, "grid": [number + 1, 1, 1]}},
        ]  # fmt: skip
    found = [(each["module"], each["direction"], each["kernel"]) for each in kernels_by_module(trace)]
    assert found == [
        ("0", "forward", "aten::addmm"), ("2", "forward", "aten::addmm"), ("", "", "aten::mse_loss"),
        ("2", "backward", "aten::mm"), ("2", "backward", "aten::mm"), ("0", "backward", "aten::mm"),
    ]  # fmt: skip
