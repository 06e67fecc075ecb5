"""How a sum is carried out: descriptions, not code. A kernel or a backend carries them out.

Terms enter exactly, and there is one rounding for each add: acc = round(acc + term). Every description returns a value
of its own format. In a matrix product the terms are products; in a sum they are the elements, which no product rounding
touches.

*Leaves* add terms: `Sequential`, `Pairwise`, `Kahan`, `Neumaier`, `Exact`. *Composites* cut the terms into parts, add
each part by an inner description, and the parts' results, terms in their turn, by an outer one: `Strided`, `Blocked`,
`SplitK`. A `TensorCore` adds products as a matrix unit does, which is not by steps of IEEE arithmetic. Each is written
as a text, too: see `parse`.
"""

from __future__ import annotations

from floatsim.accumulation.base import (
    MOST,
    TREES,
    Accumulation,
    Composite,
    Leaf,
    ProductLeaf,
    Same,
    accumulator_format,
    value_text,
)
from floatsim.accumulation.composites import (
    AccumulationLike,
    Blocked,
    SplitK,
    Strided,
    as_accumulation,
    parse,
)
from floatsim.accumulation.leaves import (
    Exact,
    Kahan,
    Neumaier,
    Pairwise,
    Sequential,
)
from floatsim.accumulation.queries import (
    fitted,
    leaves,
    rounds_stochastically,
    settled,
    tensor_cores,
)
from floatsim.accumulation.tensor_core import (
    TensorCore,
)

__all__ = [
    "MOST", "TREES", "Accumulation", "AccumulationLike", "Blocked", "Composite", "Exact", "Kahan", "Leaf", "Neumaier",
    "Pairwise", "ProductLeaf", "Same", "Sequential", "SplitK", "Strided", "TensorCore", "accumulator_format",
    "as_accumulation", "fitted", "leaves", "parse", "rounds_stochastically", "settled", "tensor_cores", "value_text",
]  # fmt: skip
