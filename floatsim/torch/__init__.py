"""PyTorch models under a number format, without a change of the model. Needs the extra `torch`.

>>> import torch, floatsim.torch as ft
>>> model = torch.nn.Linear(2, 1)
>>> with ft.emulate("bf16", model) as run:
...     model(torch.ones(1, 2)).sum().backward()
>>> run.uncovered
Counter()
"""

from __future__ import annotations

from floatsim._extras import install_command

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"floatsim.torch needs PyTorch: {install_command('torch')}") from error

from floatsim.torch.blocks import Linear, matmul, quantize
from floatsim.torch.emulation import emulate
from floatsim.torch.layer_blame import Blame, BlameStep, blame
from floatsim.torch.layer_sensitivity import LayerSensitivity, Sensitivity, sensitivity
from floatsim.torch.policy_costs import Costs, PolicyCost, costs
from floatsim.torch.quantizers import FakeQuantize, fake_quantize
from floatsim.torch.run import Event, Report, Row, Run
from floatsim.torch.scaling import Delayed
from floatsim.torch.twin import KINDS, Definition, Difference, Place, Recording, TwinReport, check_twin, record_twin
from floatsim.training import Cache, Gemm, Op, Policy

__all__ = [
    "KINDS",
    "Blame",
    "BlameStep",
    "Cache",
    "Costs",
    "Definition",
    "Delayed",
    "Difference",
    "Event",
    "FakeQuantize",
    "Gemm",
    "LayerSensitivity",
    "Linear",
    "Op",
    "Place",
    "Policy",
    "PolicyCost",
    "Recording",
    "Report",
    "Row",
    "Run",
    "Sensitivity",
    "TwinReport",
    "blame",
    "check_twin",
    "costs",
    "emulate",
    "fake_quantize",
    "matmul",
    "quantize",
    "record_twin",
    "sensitivity",
]
