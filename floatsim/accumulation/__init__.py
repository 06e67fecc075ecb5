"""Descriptions of sums: the format, the rounding and the order of every add. A backend carries them out.

Terms enter exactly, and each add has one rounding: acc = round(acc + term). Every description returns values of its
own format. The terms of a matrix product are products. The terms of a sum are the elements, without a product rounding.

*Leaves* add terms: `Sequential`, `Pairwise`, `Tree`, `Kahan`, `Neumaier`, `Exact`. *Composites* split the terms into
parts. An inner description adds each part, and an outer description adds the results of the parts: `Strided`,
`Blocked`, `SplitK`, `Parts`, `Threads`. `Permuted` reorders the terms of its inner description. A `TensorCore` adds
products as a matrix unit does, which is not a sequence of IEEE operations. `Converted`, `Residue`, `Tf32x3` and
`Epilogue` are parts of GPU kernels. `Welford` is no sum: it describes a mean and a sum of squared differences in one
pass, and `Sklansky` running sums. Every description has a text form: see `parse`.
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
    TreeLeaf,
    accumulator_format,
    value_text,
)
from floatsim.accumulation.composites import (
    Blocked,
    Parts,
    SplitK,
    Strided,
)
from floatsim.accumulation.gpu_kernels import (
    Converted,
    Epilogue,
    Residue,
    Tf32x3,
    has_epilogue,
    is_symmetric,
)
from floatsim.accumulation.leaves import (
    Exact,
    Kahan,
    Neumaier,
    Pairwise,
    Sequential,
    Tree,
)
from floatsim.accumulation.permuted import (
    Permuted,
)
from floatsim.accumulation.queries import (
    fitted,
    leaves,
    rounds_stochastically,
    settled,
    tensor_cores,
)
from floatsim.accumulation.sklansky import (
    Sklansky,
)
from floatsim.accumulation.tensor_core import (
    TensorCore,
)
from floatsim.accumulation.text import (
    ACCUMULATIONS,
    AccumulationLike,
    as_accumulation,
    parse,
)
from floatsim.accumulation.threads import (
    Threads,
)
from floatsim.accumulation.welford import (
    Welford,
)

__all__ = [
    "ACCUMULATIONS", "MOST", "TREES", "Accumulation", "AccumulationLike", "Blocked", "Composite", "Converted",
    "Epilogue", "Exact", "Kahan", "Leaf", "Neumaier", "Pairwise", "Parts", "Permuted", "ProductLeaf", "Residue", "Same",
    "Sequential", "Sklansky", "SplitK", "Strided", "TensorCore", "Tf32x3", "Threads", "Tree", "TreeLeaf",
    "Welford", "accumulator_format", "as_accumulation", "fitted", "has_epilogue", "is_symmetric", "leaves", "parse",
    "rounds_stochastically", "settled", "tensor_cores", "value_text",
]  # fmt: skip
