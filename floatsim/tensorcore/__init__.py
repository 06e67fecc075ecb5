"""Matrix units, bit for bit: the architectures as a table, and what each instruction computes.

`describe` prints what is known of an instruction, and what that has been held against; `trace` shows one dot product
step by step. `architectures` is the table, `instructions` says what its rows hold; `nvidia` and `amd` have the models
in exact integers, and `reference` joins them to dot products of any length.

>>> import floatsim as fs
>>> list(fs.tensorcore.ARCHITECTURES)[:4]
['volta', 'turing', 'ampere', 'ada']
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "architectures": "ARCHITECTURES Architecture",
    "instructions": "E8M13 Evidence Instruction Scales",
    "descriptions": "Description describe",
    "traced": "TracedBlock TracedTerm",
    "traces": "Trace trace",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
