"""The operators as plain loops over exact fractions, one element at a time: the oracle of the operator tests.

Each operation is exact, then rounded once, by the definition on integers. Exponentials, logarithms and inverse roots
are scalar calls of floatsim. The loops share no code with `floatsim.operators` but the functions of a GPU.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

import floatsim as fs
from floatsim.arrays.elementwise import functions
from floatsim.operators.device_functions import ex2_approx, lg2_approx, rcp_approx

LN_2, LOG2_E = Fraction(math.log(2)), Fraction(math.log2(math.e))


def rounded(x, fmt):
    """An exact number, rounded once to the nearest number of the format, ties to even.

    OverflowError if the result is infinite.
    """
    if not x:
        return Fraction(0)
    x, fmt = Fraction(x), fs.as_format(fmt)
    numerator, denominator = abs(x.numerator), x.denominator
    exponent = numerator.bit_length() - denominator.bit_length()
    exponent -= numerator << max(-exponent, 0) < denominator << max(exponent, 0)  # 2**exponent <= |x|
    exponent = max(exponent, fmt.emin) - fmt.trailing_bits
    numerator, denominator = numerator << max(-exponent, 0), denominator << max(exponent, 0)
    units, rest = divmod(numerator, denominator)
    units += 2 * rest > denominator or (2 * rest == denominator and units % 2 == 1)
    result = Fraction(units << max(exponent, 0), 1 << max(-exponent, 0))
    if result > fmt.max:
        raise OverflowError(f"{float(x)} is infinite in {fmt.name}")
    return result if x > 0 else -result


def function(name, x, source, fmt):
    """A function of one number of the format `source`, rounded once to `fmt`."""
    return Fraction(float(getattr(functions, name)(fs.array(x, source), format=fmt)))


class Row:
    """The formats of the steps of one call, and the operations on fractions."""

    def __init__(self, formats):
        self.formats = formats

    def __call__(self, step, x):
        return rounded(x, self.formats[step])

    def f(self, step, name, x, source):
        return function(name, x, self.formats[source], self.formats[step])

    def device(self, step, function, x, source):
        """A function of a GPU of one number, in FP32, rounded to the format of the step."""
        number = function(fs.array(x, self.formats[source]), format=fs.FP32)
        return self(step, Fraction(number.item()))

    def sum(self, step, terms):
        """In order, from +0, in the format of the step."""
        total = Fraction(0)
        for term in terms:
            total = self(step, total + term)
        return total

    def dot(self, step, a, b, start=Fraction(0)):
        """In order, with rounded products."""
        total = self(step, start)
        for x, y in zip(a, b, strict=True):
            total = self(step, total + self(step, x * y))
        return total


def softmax(r, x, variant, block):
    x = [r("input", v) for v in x]
    if variant == "naive":
        powers = [r.f("exp", "exp", v, "input") for v in x]
        total = r.sum("sum", powers)
        return [r("output", r("quotient", p / total)) for p in powers]
    if variant == "online":
        largest = total = None
        for start in range(0, len(x), block):
            part = x[start : start + block]
            previous, largest = largest, r("max", max(part))
            largest = largest if previous is None else max(previous, largest)
            powers = [r.f("exp", "exp", r("shifted", v - largest), "shifted") for v in part]
            here = r.sum("block_sum", powers)
            if total is None:
                total = r("sum", here)
            else:
                factor = r.f("factor", "exp", r("difference", previous - largest), "difference")
                total = r("sum", r("rescaled", total * factor) + here)
        powers = [r.f("exp", "exp", r("shifted", v - largest), "shifted") for v in x]
        return [r("output", r("quotient", p / total)) for p in powers]
    powers, total, *_ = powers_and_sum(r, x)
    if variant == "reciprocal":
        inverse = r("inverse", 1 / total)
        return [r("output", r("product", p * inverse)) for p in powers]
    return [r("output", r("quotient", p / total)) for p in powers]


def powers_and_sum(r, x):
    largest = r("max", max(x))
    shifted = [r("shifted", v - largest) for v in x]
    powers = [r.f("exp", "exp", v, "shifted") for v in shifted]
    return powers, r.sum("sum", powers), shifted, largest


def log_probabilities(r, x, variant):
    x = [r("input", v) for v in x]
    if variant == "naive":
        powers = [r.f("exp", "exp", v, "input") for v in x]
        total = r.sum("sum", powers)
        return [r.f("result", "log", r("quotient", p / total), "quotient") for p in powers]
    _, total, shifted, largest = powers_and_sum(r, x)
    logarithm = r.f("log", "log", total, "sum")
    if variant == "shifted":
        return [r("result", v - logarithm) for v in shifted]
    normalizer = r("normalizer", largest + logarithm)
    return [r("result", v - normalizer) for v in x]


def log_softmax(r, x, variant):
    return [r("output", v) for v in log_probabilities(r, x, variant)]


def cross_entropy(r, rows, target, variant):
    losses = [-log_probabilities(r, x, variant)[t] for x, t in zip(rows, target, strict=True)]
    return r("output", r("mean", r.sum("total", losses) / len(losses)))


def moments(r, x):
    """The steps mean and square_sum by Welford's algorithm, in the format of square_sum."""
    fmt = r.formats["square_sum"]
    mean = total = Fraction(0)
    for k, v in enumerate(x, 1):
        delta = rounded(v - mean, fmt)
        mean = rounded(mean + rounded(delta / rounded(k, fmt), fmt), fmt)
        total = rounded(delta * rounded(v - mean, fmt) + total, fmt)
    return r("mean", mean), total


def affine(r, normalized, weight, bias, fused=False):
    """Weighted, biased, output."""
    for j, v in enumerate(normalized):
        value = v
        if fused and weight is not None:
            yield r("output", r("biased", value * r("weight", weight[j]) + (r("bias", bias[j]) if bias else 0)))
            continue
        if weight is not None:
            value = r("weighted", value * r("weight", weight[j]))
        if bias is not None:
            value = r("biased", value + r("bias", bias[j]))
        yield r("output", value)


def inverse_root(r, variance, eps, source):
    eps = rounded(Fraction(eps), r.formats[source])  # a Python number takes the format of the variance
    return r.f("rsqrt", "rsqrt", r("stabilized", variance + eps), "stabilized")


def layer_norm(r, x, weight, bias, eps, variant):
    x, n = [r("input", v) for v in x], len(x)
    if variant == "welford":
        mean, moment = r("mean", x[0]), Fraction(0)
        for k, v in enumerate(x[1:], 2):
            delta = r("delta", v - mean)
            mean = r("mean", mean + r("ratio", delta / k))
            moment = r("moment", moment + r("product", delta * r("remainder", v - mean)))
        variance = r("variance", moment / n)
        centred = [r("centred", v - mean) for v in x]
    elif variant == "threads":
        mean, total = moments(r, x)
        variance = r("variance", total / n)
        centred = [r("centred", v - mean) for v in x]
    else:
        mean = r("mean", r.sum("sum", x) / n)
        centred = [r("centred", v - mean) for v in x]
        terms = centred if variant == "two-pass" else x
        total = r.sum("square_sum", [r("square", v * v) for v in terms])
        if variant == "two-pass":
            variance = r("variance", total / n)
        else:
            variance = r("variance", r("mean_square", total / n) - r("square_of_mean", mean * mean))
    root = inverse_root(r, variance, eps, "variance")
    return list(affine(r, [r("normalized", v * root) for v in centred], weight, bias, variant == "threads"))


def rms_norm(r, x, weight, eps, variant):
    x = [r("input", v) for v in x]
    total = r.dot("square_sum", x, x) if variant == "threads" else r.sum("square_sum", [r("square", v * v) for v in x])
    root = inverse_root(r, r("mean_square", total / len(x)), eps, "mean_square")
    return list(affine(r, [r("normalized", v * root) for v in x], weight, None))


def batch_norm(r, x, running, weight, bias, eps, momentum, training):
    """One channel: its outputs, and the updated statistics."""
    x, n = [r("input", v) for v in x], len(x)
    mean, variance = r("running_mean", running[0]), r("running_var", running[1])
    source = "running_var"
    if training:
        batch_mean = r("mean", r.sum("sum", x) / n)
        centred = [r("centred", v - batch_mean) for v in x]
        total = r.sum("square_sum", [r("square", v * v) for v in centred])
        unbiased = r("unbiased_variance", total / (n - 1))
        updated = []
        for name, old, new, new_step in (
            ("mean", mean, batch_mean, "mean"),
            ("var", variance, unbiased, "unbiased_variance"),
        ):
            kept = r(f"kept_{name}", old * rounded(Fraction(1 - momentum), r.formats[f"running_{name}"]))
            fresh = r(f"new_{name}", new * rounded(Fraction(momentum), r.formats[new_step]))
            updated.append(r(f"updated_{name}", kept + fresh))
        mean, variance, source = *updated, "variance"
        batch_variance = r("variance", total / n)
    else:
        centred = [r("centred", v - mean) for v in x]
        batch_variance = variance
    root = inverse_root(r, batch_variance, eps, source)
    normalized = [r("normalized", v * root) for v in centred]
    output = list(affine(r, normalized, [weight] * n, [bias] * n))
    return output, mean, variance


def linear(r, x, weight, bias, variant):
    x, outputs = [r("input", v) for v in x], []
    for row, b in zip(weight, bias, strict=True):
        w, start = [r("weight", v) for v in row], r("bias", b)
        if variant == "bias-first":
            outputs.append(r("output", r.dot("product", x, w, start)))
        else:
            outputs.append(r("output", r("biased", r.dot("product", x, w) + start)))
    return outputs


def attention(r, q, k, v, kept, variant, scale, block=None, last_first=True, splits=1):
    q, k, v = ([[r(step, e) for e in row] for row in m] for step, m in (("query", q), ("key", k), ("value", v)))
    if variant == "flash-attention-2":
        return flash(r, q, k, v, kept, scale, block, last_first)
    if variant.endswith("-kernel"):
        return [
            fused_row(r, row, k, v, used, variant, scale, block, last_first, splits)
            for row, used in zip(q, kept, strict=True)
        ]
    outputs = []
    root = Fraction(math.sqrt(float(scale)))
    if variant == "scale-both":
        k = [[r("scaled_key", e * rounded(root, r.formats["key"])) for e in row] for row in k]
    for i, row in enumerate(q):
        if variant == "scale-before":
            scaled = [r("scaled", e * rounded(scale, r.formats["query"])) for e in row]
            scores = [r.dot("scores", scaled, key) for key in k]
        elif variant == "scale-both":
            scaled = [r("scaled", e * rounded(root, r.formats["query"])) for e in row]
            scores = [r.dot("scores", scaled, key) for key in k]
        else:
            scores = [r("scaled", r.dot("scores", row, key) * rounded(scale, r.formats["scores"])) for key in k]
        used = [j for j in range(len(k)) if kept[i][j]]
        powers = [Fraction(0)] * len(k)
        if used:
            largest = r("max", max(scores[j] for j in used))
            for j in used:
                powers[j] = r.f("exp", "exp", r("shifted", scores[j] - largest), "shifted")
        total = r.sum("sum", powers) or Fraction(1)
        probabilities = [r("probabilities", r("quotient", p / total)) for p in powers]
        outputs.append([r("output", r.dot("product", probabilities, column)) for column in zip(*v, strict=True)])
    return outputs


def fused_row(r, row, k, v, used, variant, scale, block, last_first, splits):
    """One row of attention by a fused kernel."""
    length = -(-len(range(0, len(k), block)) // splits) * block
    parts = []
    for start in range(0, len(k), length):
        here = slice(start, start + length)
        parts.append(fused_part(r, row, k[here], v[here], used[here], variant, scale, block, last_first))
    if splits == 1:
        return [r("output", o) for o in parts[0][0]]
    logs = []
    for _, total, largest in parts:
        logs.append(scaled_logarithm(r, total, largest, scale) if total else None)
    largest = r("largest", max((log for log in logs if log is not None), default=Fraction(0)))
    powers = [Fraction(0) if log is None else exp_of(r, "weight_exp", "weight_shifted", log - largest) for log in logs]
    total = r.f("weight_log", "log", r.sum("weight_sum", powers) or Fraction(1), "weight_sum")
    total, outputs = r("total", total + largest), [Fraction(0)] * len(v[0])
    for (part, *_), log in zip(parts, logs, strict=True):
        weight = Fraction(0) if log is None else exp_of(r, "part_weight", "weight_exponent", log - total)
        outputs = [r("combined", weight * o + old) for o, old in zip(part, outputs, strict=True)]
    return [r("output", o) for o in outputs]


def scaled_logarithm(r, total, largest, scale):
    log = r.device("log", lg2_approx, total or Fraction(1), "sum") * rounded(LN_2, r.formats["log"])
    return r("logsumexp", (largest or 0) * rounded(scale, r.formats["max"]) + r("scaled_log", log))


def exp_of(r, step, source, x):
    return r.f(step, "exp", r(source, x), source)


def fused_part(r, row, k, v, used, variant, scale, block, last_first):
    """The normalized output of some keys, the sum of the exponentials, and the largest score or None."""

    def scaled(step, x, source):
        fmt = r.formats[source]
        factor = 1.0 if variant == "efficient-kernel" else float(rounded(scale, fmt))
        return r(step, x * rounded(Fraction(factor * float(np.log2(np.e))), fmt))

    starts = list(range(0, len(k), block))
    largest = lanes = output = None
    for start in reversed(starts) if last_first else starts:
        keys = range(start, min(start + block, len(k)))
        scores = {j: r.dot("scores", row, k[j]) for j in keys}
        source = "scores"
        if variant == "efficient-kernel":
            scores = {j: r("scaled", s * rounded(scale, r.formats["scores"])) for j, s in scores.items()}
            source = "scaled"
        seen = [r("max", scores[j]) for j in keys if used[j]] + ([] if largest is None else [largest])
        previous, largest = largest, max(seen, default=None)
        reference = scaled("scaled_max", largest or Fraction(0), "max")
        powers = []
        for j in keys:
            shifted = r("shifted", scaled("scaled_scores", scores[j], source) - reference)
            powers.append(r.device("exp", ex2_approx, shifted, "shifted") if used[j] else Fraction(0))
        probabilities = [r("probabilities", p) for p in powers]
        columns = [[v[j][d] for j in keys] for d in range(len(v[0]))]
        factor = None if lanes is None else Fraction(0)
        if previous is not None:
            if variant == "flash-kernel":
                step, difference = "scaled_difference", r("difference", previous - (largest or 0))
                exponent = scaled(step, difference, "difference")
            else:
                step, exponent = "difference", r("difference", scaled("scaled_previous", previous, "max") - reference)
            factor = r.device("factor", ex2_approx, exponent, step)
        lanes = fused_sums(r, powers, lanes, factor, variant)
        old = [Fraction(0)] * len(columns) if output is None else [r("rescaled_output", o * factor) for o in output]
        output = [r.dot("product", probabilities, c, o) for o, c in zip(old, columns, strict=True)]
    total = lanes if variant == "efficient-kernel" else r.sum("sum", lanes)
    if variant == "cudnn-kernel":
        inverse = r.device("inverse", rcp_approx, total or Fraction(1), "sum")
    else:
        inverse = r("inverse", 1 / (total or Fraction(1)))
    return [r("normalized", o * inverse) for o in output], total, largest


def fused_sums(r, powers, lanes, factor, variant):
    """The sums of four lanes, or of the row in the memory-efficient kernel, after one more block."""
    width = 32 if variant == "efficient-kernel" else 8
    powers = powers + [Fraction(0)] * (-len(powers) % width)

    def of_lane(terms):
        return [[e for j, e in enumerate(terms) if j % 8 // 2 == lane] for lane in range(4)]

    if variant == "efficient-kernel":
        warps = [[r.sum("block_sum", lane) for lane in of_lane(powers[n : n + 32])] for n in range(0, len(powers), 32)]
        sums = [r.sum("warp_sum", warp) for warp in warps]
        total = None if lanes is None else r("rescaled", lanes * factor)
        for warp in sums:
            total = r("sum", warp if total is None else total + warp)
        return total
    found = []
    for lane, terms in enumerate(of_lane(powers)):
        if variant == "cudnn-kernel":
            block = r.sum("block_sum", terms)
            found.append(r("lanes", block if lanes is None else lanes[lane] * factor + block))
        else:
            total = r("lanes", terms[0]) if lanes is None else r("rescaled", lanes[lane] * factor + terms[0])
            for term in terms[1:]:
                total = r("lanes", total + term)
            found.append(total)
    return found


def flash(r, q, k, v, kept, scale, block, last_first):
    c = Fraction(float(scale) * float(np.log2(np.e)))
    starts = list(range(0, len(k), block))
    outputs = []
    for i, row in enumerate(q):
        largest = total = output = None
        for start in reversed(starts) if last_first else starts:
            keys = range(start, min(start + block, len(k)))
            scores = {j: r.dot("scores", row, k[j]) for j in keys}
            used = [j for j in keys if kept[i][j]]
            here = r("max", max(scores[j] for j in used)) if used else None
            previous, largest = largest, here
            if previous is not None and (largest is None or previous > largest):
                largest = previous
            reference = largest or Fraction(0)
            scaled_max = r("scaled_max", reference * rounded(c, r.formats["max"]))
            powers = []
            for j in keys:
                shifted = scores[j] * rounded(c, r.formats["scores"]) - scaled_max
                powers.append(r.f("exp", "exp2", r("shifted", shifted), "shifted") if j in used else Fraction(0))
            here = r.sum("block_sum", powers)
            probabilities = [r("probabilities", p) for p in powers]
            columns = [[v[j][d] for j in keys] for d in range(len(v[0]))]
            if total is None:
                total, output = r("sum", here), [r.dot("product", probabilities, column) for column in columns]
                continue
            factor = Fraction(0)
            if previous is not None:
                difference = r("difference", previous - reference)
                scaled = r("scaled_difference", difference * rounded(c, r.formats["difference"]))
                factor = r.f("factor", "exp2", scaled, "scaled_difference")
            total = r("sum", r("rescaled", total * factor) + here)
            output = [
                r.dot("product", probabilities, column, r("rescaled_output", old * factor))
                for old, column in zip(output, columns, strict=True)
            ]
        inverse = r("inverse", 1 / (total or Fraction(1)))
        outputs.append([r("output", r("normalized", o * inverse)) for o in output])
    return outputs


def conv2d(r, image, filters, bias, stride, padding, variant):
    """One image: (outputs, rows, columns)."""
    image = [[[r("input", v) for v in row] for row in channel] for channel in image]
    filters = [[[[r("weight", v) for v in row] for row in channel] for channel in f] for f in filters]
    height, width = len(image[0]), len(image[0][0])
    rows, columns = len(filters[0][0]), len(filters[0][0][0])
    outputs = []
    for f, b in zip(filters, bias, strict=True):
        start = r("bias", b)
        plane = []
        for top in range(-padding, height + padding - rows + 1, stride):
            line = []
            for left in range(-padding, width + padding - columns + 1, stride):
                terms, weights = [], []
                for channel, weight in zip(image, f, strict=True):
                    for i in range(rows):
                        for j in range(columns):
                            y, x = top + i, left + j
                            inside = 0 <= y < height and 0 <= x < width
                            terms.append(channel[y][x] if inside else Fraction(0))
                            weights.append(weight[i][j])
                if variant == "bias-first":
                    line.append(r("output", r.dot("product", terms, weights, start)))
                else:
                    line.append(r("output", r("biased", r.dot("product", terms, weights) + start)))
            plane.append(line)
        outputs.append(plane)
    return outputs


def pool(r, plane, size, stride, kind):
    plane = [[r("input", v) for v in row] for row in plane]
    lines = []
    for top in range(0, len(plane) - size + 1, stride):
        line = []
        for left in range(0, len(plane[0]) - size + 1, stride):
            window = [plane[top + i][left + j] for i in range(size) for j in range(size)]
            if kind == "max":
                line.append(r("output", r("max", max(window))))
            else:
                line.append(r("output", r("mean", r.sum("sum", window) / size**2)))
        lines.append(line)
    return lines


def activation(r, operator, variant, x):
    x = r("input", x)
    if variant in ("once", "standard"):
        value = r("activation", max(x, Fraction(0))) if operator == "relu" else r.f("activation", operator, x, "input")
        return r("output", value)
    if operator == "gelu":
        half = r("half", x / 2)
        if variant == "erf":
            inner = r.f("erf", "erf", r("scaled", x * rounded(0.5**0.5, r.formats["input"])), "scaled")
        else:
            cube = r("cube", r("square", x * x) * x)
            total = r("inner", x + r("cubic", cube * rounded(0.044715, r.formats["cube"])))
            scaled = r("scaled", total * rounded(float(np.sqrt(2 / np.pi)), r.formats["inner"]))
            inner = r.f("tanh", "tanh", scaled, "scaled")
        return r("output", r("product", half * r("shifted", inner + 1)))
    if operator == "softplus":
        return r("output", r.f("result", "log1p", r.f("exp", "exp", x, "input"), "exp"))
    denominator = r("denominator", r.f("exp", "exp", -x, "input") + 1)
    if operator == "silu":
        return r("output", r("quotient", x / denominator))
    return r("output", r("inverse", 1 / denominator))


def pre_activations(r, x, hidden, weights, biases):
    for name, suffix, operand, weight, bias in zip(
        ("input", "hidden"), ("ih", "hh"), (x, hidden), weights, biases, strict=True
    ):
        yield [
            r(f"{name}_biased", r.dot(f"{name}_product", operand, [r(f"weight_{suffix}", v) for v in row])
              + r(f"bias_{suffix}", b))
            for row, b in zip(weight, bias, strict=True)
        ]  # fmt: skip


def cell(r, kind, x, hidden, memory, weights, biases):
    """The next hidden state of one row, and of an LSTM the next cell state."""
    x, hidden = [r("input", v) for v in x], [r("hidden", v) for v in hidden]
    left, right = pre_activations(r, x, hidden, weights, biases)
    n = len(hidden)
    if kind == "rnn":
        totals = [r("total", a + b) for a, b in zip(left, right, strict=True)]
        return [r("output", r.f("activation", "tanh", v, "total")) for v in totals], None
    if kind == "gru":
        states = []
        for j in range(n):
            reset = r.f("reset", "sigmoid", r("reset_sum", left[j] + right[j]), "reset_sum")
            update = r.f("update", "sigmoid", r("update_sum", left[n + j] + right[n + j]), "update_sum")
            gated = r("gated", reset * right[2 * n + j])
            candidate = r.f("candidate", "tanh", r("candidate_sum", left[2 * n + j] + gated), "candidate_sum")
            weighted = r("weighted", update * r("difference", hidden[j] - candidate))
            states.append(r("output", r("total", candidate + weighted)))
        return states, None
    gates = [r("gates", a + b) for a, b in zip(left, right, strict=True)]
    states, memories = [], []
    for j in range(n):
        inward = r.f("input_gate", "sigmoid", gates[j], "gates")
        forget = r.f("forget_gate", "sigmoid", gates[n + j], "gates")
        candidate = r.f("candidate", "tanh", gates[2 * n + j], "gates")
        outward = r.f("output_gate", "sigmoid", gates[3 * n + j], "gates")
        kept = r("kept", forget * r("cell", memory[j]))
        updated = r("updated_cell", kept + r("new", inward * candidate))
        states.append(r("output", r("product", outward * r.f("tanh", "tanh", updated, "updated_cell"))))
        memories.append(updated)
    return states, memories


# -- gradients ---------------------------------------------------------------------------------------------------------


def columns_of(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def softmax_gradient(r, g, y, sum_step="sum"):
    total = r.sum(sum_step, [r("product", a * b) for a, b in zip(g, y, strict=True)])
    return [r("result", r("difference", a - total) * b) for a, b in zip(g, y, strict=True)]


def softmax_backward(r, g, y, variant):
    g, y = [r("gradient", v) for v in g], [r("result_of_forward", v) for v in y]
    if variant == "fused":
        products = [r("product", a * b) for a, b in zip(g, y, strict=True)]
        total = r.sum("sum", products)
        return [r("output", r("result", p - b * total)) for p, b in zip(products, y, strict=True)]
    return [r("output", v) for v in softmax_gradient(r, g, y)]


def log_softmax_backward(r, g, y, variant):
    g, y = [r("gradient", v) for v in g], [r("result_of_forward", v) for v in y]
    total = r.sum("sum", g)
    powers = [r.f("exp", "exp", v, "result_of_forward") for v in y]
    if variant == "fused":
        return [r("output", r("result", a - p * total)) for a, p in zip(g, powers, strict=True)]
    return [r("output", r("result", a - r("product", p * total))) for a, p in zip(g, powers, strict=True)]


def cross_entropy_backward(r, rows, target, loss_scale, variant):
    outputs = []
    for x, t in zip(rows, target, strict=True):
        powers, total, shifted, _ = powers_and_sum(r, [r("input", v) for v in x])
        line = []
        if variant == "from-log-softmax":
            logarithm = r.f("log", "log", total, "sum")
            gradient = r("target_gradient", -rounded(loss_scale, r.formats["sum"]) / len(rows))
            for j, v in enumerate(shifted):
                result = r("result", v - logarithm)
                share = r.f("probability", "exp", result, "result")
                line.append(r("output", r("difference", gradient * (j == t) - share * gradient)))
            outputs.append(line)
            continue
        for j, p in enumerate(powers):
            difference = r("difference", r("quotient", p / total) - (j == t))
            scaled = r("scaled", difference * rounded(loss_scale, r.formats["difference"]))
            line.append(r("output", r("mean", scaled / len(rows))))
        outputs.append(line)
    return outputs


def linear_backward(r, g, x, weight):
    g, x = [[r("gradient", v) for v in row] for row in g], [[r("input", v) for v in row] for row in x]
    w = columns_of([[r("weight", v) for v in row] for row in weight])
    by_x = [[r("output", r.dot("input_gradient", row, column)) for column in w] for row in g]
    by_w = [[r("output", r.dot("weight_gradient", a, b)) for b in columns_of(x)] for a in columns_of(g)]
    return by_x, by_w, [r("output", r.sum("bias_gradient", column)) for column in columns_of(g)]


def norm_backward(r, g, x, weight, eps, centre):
    g, x = [[r("gradient", v) for v in row] for row in g], [[r("input", v) for v in row] for row in x]
    w, n = [r("weight", v) for v in weight], len(weight)
    by_x, normalized_rows = [], []
    for gradient, given in zip(g, x, strict=True):
        row = given
        if centre:
            mean = r("mean", r.sum("sum", row) / n)
            row = [r("centred", v - mean) for v in row]
        step = "variance" if centre else "mean_square"
        spread = r(step, r.sum("square_sum", [r("square", v * v) for v in row]) / n)
        root = inverse_root(r, spread, eps, step)
        normalized = [r("normalized", v * root) for v in row]
        weighted = [r("weighted_gradient", a * b) for a, b in zip(gradient, w, strict=True)]
        products = [r("product", a * b) for a, b in zip(weighted, normalized, strict=True)]
        slope = r("mean_product", r.sum("product_sum", products) / n)
        if centre:
            shift = r("mean_gradient", r.sum("gradient_sum", weighted) / n)
            weighted = [r("centred_gradient", v - shift) for v in weighted]
        line = []
        for a, b in zip(weighted, normalized, strict=True):
            line.append(r("output", r("result", r("corrected", a - r("correction", b * slope)) * root)))
        by_x.append(line)
        normalized_rows.append(normalized)
    by_w = []
    for a, b in zip(columns_of(g), columns_of(normalized_rows), strict=True):
        terms = [r("weight_product", u * v) for u, v in zip(a, b, strict=True)]
        by_w.append(r("output", r.sum("weight_gradient", terms)))
    by_b = [r("output", r.sum("bias_gradient", column)) for column in columns_of(g)] if centre else None
    return by_x, by_w, by_b


def norm_backward_by_threads(r, g, x, weight, eps, centre):
    """The variant "threads", whose sums are in order and round the products."""
    g, x = [[r("gradient", v) for v in row] for row in g], [[r("input", v) for v in row] for row in x]
    w, n = [r("weight", v) for v in weight], len(weight)
    by_x, centred_rows, roots = [], [], []
    for gradient, row in zip(g, x, strict=True):
        centred, step = row, "mean_square"
        if centre:
            mean, total = moments(r, row)
            spread, step = r("variance", total / n), "variance"
            centred = [r("centred", v - mean) for v in row]
        else:
            spread = r("mean_square", r.dot("square_sum", row, row) / n)
        root = inverse_root(r, spread, eps, step)
        count = rounded(n, r.formats["rsqrt"])
        weighted = [r("weighted_gradient", a * b) for a, b in zip(gradient, w, strict=True)]
        products = [r("product", a * b) for a, b in zip(weighted, centred, strict=True)]
        slope = r.dot("product_sum", products, [root] * n)
        shift = r.sum("gradient_sum", weighted) if centre else None
        ends = r("scaled_root", r("share", Fraction(1) / count) * root)
        line = []
        for a, b, v in zip(gradient, w, centred, strict=True):
            correction = r("correction", r("normalized", v * root) * slope)
            value = r("corrected", r("scaled_weight", count * b) * a - correction)
            value = r("centred_gradient", value - shift) if centre else value
            line.append(r("output", r("result", value * ends)))
        by_x.append(line)
        centred_rows.append(centred)
        roots.append(root)
    by_w = []
    for a, b in zip(columns_of(g), columns_of(centred_rows), strict=True):
        terms = [r("weight_product", u * v) for u, v in zip(a, b, strict=True)]
        by_w.append(r("output", r.dot("weight_gradient", terms, roots)))
    by_b = [r("output", r.sum("bias_gradient", column)) for column in columns_of(g)] if centre else None
    return by_x, by_w, by_b


def attention_backward(r, g, q, k, v, kept, scale, variant):
    operands = (("gradient", g), ("query", q), ("key", k), ("value", v))
    g, q, k, v = ([[r(step, e) for e in row] for row in m] for step, m in operands)
    if variant == "flash-kernel":
        return flash_gradients(r, g, q, k, v, kept, scale, 2)
    if variant == "cudnn-kernel":
        return cudnn_gradients(r, g, q, k, v, kept, scale, 2)
    probabilities, gradients, both = [], [], variant == "scale-both"
    root = Fraction(math.sqrt(float(scale)))
    if both:
        q, k = (
            [[r(step, e * rounded(root, r.formats[source])) for e in row] for row in m]
            for step, m, source in (("scaled", q, "query"), ("scaled_key", k, "key"))
        )
    for i, row in enumerate(q):
        scores = [r.dot("scores", row, key) for key in k]
        if not both:
            scores = [r("scaled", e * rounded(scale, r.formats["scores"])) for e in scores]
        used = [j for j in range(len(k)) if kept[i][j]]
        largest = r("max", max(scores[j] for j in used))
        powers = [Fraction(0)] * len(k)
        for j in used:
            powers[j] = r.f("exp", "exp", r("shifted", scores[j] - largest), "shifted")
        total = r.sum("sum", powers)
        line = [r("probabilities", r("quotient", p / total)) for p in powers]
        by_probability = [r.dot("probability_gradient", g[i], value) for value in v]
        probabilities.append(line)
        if both:
            products = [r("product", a * b) for a, b in zip(by_probability, line, strict=True)]
            total = r.sum("sum_of_products", products)
            gradients.append([r("result", a - p * total) for a, p in zip(products, line, strict=True)])
            continue
        result = softmax_gradient(r, by_probability, line, "sum_of_products")
        gradients.append([r("scaled_result", e * rounded(scale, r.formats["result"])) for e in result])
    by_value = [[r("output", r.dot("value_gradient", p, c)) for c in columns_of(g)] for p in columns_of(probabilities)]
    if both:
        by_query = scaled_products(r, "query_gradient", "query_product", gradients, k, root)
        return by_query, scaled_products(r, "key_gradient", "key_product", columns_of(gradients), q, root), by_value
    by_query = [[r("output", r.dot("query_gradient", row, c)) for c in columns_of(k)] for row in gradients]
    by_key = [[r("output", r.dot("key_gradient", row, c)) for c in columns_of(q)] for row in columns_of(gradients)]
    return by_query, by_key, by_value


def flash_gradients(r, g, q, k, v, kept, scale, block):
    """Every row has a key, there are two blocks of keys, and at most 8 elements of a row of values."""
    powers, results = [], []
    for i, row in enumerate(q):
        output, total, largest = fused_part(r, row, k, v, kept[i], "flash-kernel", scale, block, True)
        logarithm, lane = scaled_logarithm(r, total, largest, scale), Fraction(0)
        for a, b in zip(g[i], output, strict=True):
            lane = r("delta_lanes", lane + a * r("forward_output", b))
        delta = r("delta", lane)
        subtracted = r("scaled_logsumexp", logarithm * rounded(LOG2_E, r.formats["logsumexp"]))
        fmt = r.formats["scores"]
        c = rounded(Fraction(float(rounded(scale, fmt)) * float(np.log2(np.e))), fmt)
        line, slope = [], []
        for j, key in enumerate(k):
            shifted = r("power_shifted", r("scaled_scores", r.dot("scores", row, key) * c) - subtracted)
            power = r.device("power", ex2_approx, shifted, "power_shifted") if kept[i][j] else Fraction(0)
            centred = r("centred", r.dot("probability_gradient", g[i], v[j]) - delta)
            line.append(r("rounded_power", power))
            slope.append(r("rounded_result", r("result", power * centred)))
        powers.append(line)
        results.append(slope)
    starts = reversed(range(0, len(q), block))
    order = [i for start in starts for i in range(start, min(start + block, len(q)))]

    def over_queries(step, columns, rows):
        """Blocks of queries from the last to the first, in one accumulator."""
        others = [[column[i] for i in order] for column in columns_of(rows)]
        return [[r.dot(step, [column[i] for i in order], other) for other in others] for column in columns]

    by_query = [
        [
            r("query_sum", r("query_sum", first) + second)
            for first, second in (
                [r.dot("query_product", slope[n : n + block], column[n : n + block]) for n in (0, block)]
                for column in columns_of(k)
            )
        ]
        for slope in results
    ]
    by_key = over_queries("key_product", columns_of(results), q)
    ends = [
        [[r("output", r(f"{name}_gradient", e * rounded(scale, r.formats[source]))) for e in row] for row in rows]
        for name, source, rows in (("query", "query_sum", by_query), ("key", "key_product", by_key))
    ]
    return *ends, each(r, "output", over_queries("value_gradient", columns_of(powers), g))


def cudnn_gradients(r, g, q, k, v, kept, scale, block):
    """Every row has a key, and there are two elements of a row of values."""
    powers, results = [], []
    for i, row in enumerate(q):
        output, total, largest = fused_part(r, row, k, v, kept[i], "cudnn-kernel", scale, block, False)
        natural = r("natural_max", largest * rounded(scale, r.formats["max"]))
        log = r.device("log", lg2_approx, total, "sum")
        logarithm = r("logsumexp", log * rounded(LN_2, r.formats["log"]) + natural)
        (a, b), (c, d) = g[i], (r("forward_output", e) for e in output)
        delta = r("delta", r("delta_lanes", r("delta_pairs", b * d + r("delta_pairs", a * c))))
        line, slope = [], []
        for j, key in enumerate(k):
            natural = r("natural_scores", r.dot("scores", row, key) * rounded(scale, r.formats["scores"]))
            shifted = r("power_shifted", natural - logarithm)
            exponent = r("power_exponent", shifted * rounded(LOG2_E, r.formats["logsumexp"]))
            power = r.device("power", ex2_approx, exponent, "power_exponent") if kept[i][j] else Fraction(0)
            centred = r("centred", r.dot("probability_gradient", g[i], v[j]) - delta)
            result = r("result", power * centred)
            line.append(r("rounded_power", power))
            slope.append(r("rounded_result", r("scaled_result", result * rounded(scale, r.formats["result"]))))
        powers.append(line)
        results.append(slope)
    products = (
        ("query_product", results, k), ("key_product", columns_of(results), q),
        ("value_gradient", columns_of(powers), g),
    )  # fmt: skip
    return tuple(
        [[r("output", r.dot(step, row, column)) for column in columns_of(m)] for row in rows]
        for step, rows, m in products
    )


def scaled_products(r, step, product, rows, m, root):
    number = rounded(root, r.formats[product])
    return [[r("output", r(step, r.dot(product, row, c) * number)) for c in columns_of(m)] for row in rows]


def each(r, step, values):
    """The values of nested lists, each rounded to the format of the step."""
    return [each(r, step, v) for v in values] if isinstance(values, list) else r(step, values)


def batch_norm_backward(r, g, x, running, weight, eps, training):
    """One channel: the gradients by its elements, its weight and its bias."""
    g, x, w, n = each(r, "gradient", g), each(r, "input", x), r("weight", weight), len(x)
    mean, variance, source = r("running_mean", running[0]), r("running_var", running[1]), "running_var"
    if training:
        mean = r("mean", r.sum("sum", x) / n)
    centred = [r("centred", v - mean) for v in x]
    if training:
        source, variance = "variance", r("variance", r.sum("square_sum", [r("square", v * v) for v in centred]) / n)
    root = inverse_root(r, variance, eps, source)
    normalized = [r("normalized", v * root) for v in centred]
    weighted = [r("weighted_gradient", v * w) for v in g]
    if training:
        products = [r("product", a * b) for a, b in zip(weighted, normalized, strict=True)]
        slope = r("mean_product", r.sum("product_sum", products) / n)
        shift = r("mean_gradient", r.sum("gradient_sum", weighted) / n)
        weighted = [
            r("corrected", r("centred_gradient", a - shift) - r("correction", b * slope))
            for a, b in zip(weighted, normalized, strict=True)
        ]
    terms = [r("weight_product", a * b) for a, b in zip(g, normalized, strict=True)]
    by_weight, by_bias = r.sum("weight_gradient", terms), r.sum("bias_gradient", g)
    return [r("output", r("result", v * root)) for v in weighted], r("output", by_weight), r("output", by_bias)


def windows_over(height, width, size, stride, padding):
    """Of each element of an image, the windows that contain it and its place in them: (window, place), in C order."""
    rows, columns = size
    found = {(y, x): [] for y in range(height) for x in range(width)}
    for i, top in enumerate(range(-padding, height + padding - rows + 1, stride)):
        for j, left in enumerate(range(-padding, width + padding - columns + 1, stride)):
            for y in range(rows):
                for x in range(columns):
                    if (top + y, left + x) in found:
                        found[top + y, left + x].append(((i, j), (y, x)))
    return found


def conv2d_backward(r, g, images, filters, stride, padding, variant):
    """All images: the gradients by them, by the filters and by the bias."""
    g, images, filters = each(r, "gradient", g), each(r, "input", images), each(r, "weight", filters)
    outputs, channels = len(filters), len(images[0])
    height, width, size = len(images[0][0]), len(images[0][0][0]), (len(filters[0][0]), len(filters[0][0][0]))
    over = windows_over(height, width, size, stride, padding)
    by_x = [[[[None] * width for _ in range(height)] for _ in range(channels)] for _ in images]
    for n, gradient in enumerate(g):
        for k in range(channels):
            for (y, x), windows in over.items():
                if variant == "columns":
                    terms = [
                        r.dot("window_gradient", [gradient[o][i][j] for o in range(outputs)],
                              [filters[o][k][a][b] for o in range(outputs)])
                        for (i, j), (a, b) in windows
                    ]  # fmt: skip
                    total = r.sum("input_gradient", terms)
                else:
                    pairs = [
                        (gradient[o][i][j], filters[o][k][a][b])
                        for o in range(outputs) for (i, j), (a, b) in windows
                    ]  # fmt: skip
                    total = r.dot("input_gradient", [a for a, _ in pairs], [b for _, b in pairs])
                by_x[n][k][y][x] = r("output", total)
    by_w = [[[[None] * size[1] for _ in range(size[0])] for _ in range(channels)] for _ in filters]
    places = [(n, i, j) for n in range(len(g)) for i in range(len(g[0][0])) for j in range(len(g[0][0][0]))]
    for o in range(outputs):
        gradients = [g[n][o][i][j] for n, i, j in places]
        for k, a, b in np.ndindex(channels, *size):
            values = []
            for n, i, j in places:
                y, x = i * stride - padding + a, j * stride - padding + b
                inside = 0 <= y < height and 0 <= x < width
                values.append(images[n][k][y][x] if inside else Fraction(0))
            by_w[o][k][a][b] = r("output", r.dot("weight_gradient", gradients, values))
    by_bias = [r("output", r.sum("bias_gradient", [g[n][o][i][j] for n, i, j in places])) for o in range(outputs)]
    return by_x, by_w, by_bias


def pool_backward(r, g, plane, height, width, size, stride):
    """One channel. `plane` is the operand of a maximum; None for a mean."""
    g, first = each(r, "gradient", g), {}
    if plane is not None:
        plane = each(r, "input", plane)
        for i in range(len(g)):
            for j in range(len(g[0])):
                window = [plane[i * stride + a][j * stride + b] for a in range(size) for b in range(size)]
                first[i, j] = divmod(window.index(max(window)), size)
    rows = [[None] * width for _ in range(height)]
    for (y, x), windows in windows_over(height, width, (size, size), stride, 0).items():
        if plane is None:
            terms = [r("share", g[i][j] / size**2) for (i, j), _ in windows]
        else:
            terms = [g[i][j] for (i, j), place in windows if first[i, j] == place]
        rows[y][x] = r("output", r.sum("sum", terms))
    return rows


def embedding_backward(r, g, indices, rows):
    g = each(r, "gradient", g)
    chosen = [[row for row, index in zip(g, indices, strict=True) if index == n] for n in range(rows)]
    return [[r("output", r.sum("sum", [row[j] for row in some])) for j in range(len(g[0]))] for some in chosen]


def activation_backward(r, operator, variant, g, x):
    g = r("gradient", g)
    if operator in ("tanh", "sigmoid"):
        y = r("result_of_forward", x)
        if operator == "tanh":
            return r("output", r("result", g * r("slope", 1 - r("square", y * y))))
        return r("output", r("result", r("scaled", g * r("complement", 1 - y)) * y))
    x = r("input", x)
    if operator == "relu":
        return r("output", g if x > 0 else Fraction(0))
    if operator == "softplus":
        if variant == "once":
            return r("output", r("result", g * r.f("slope", "sigmoid", x, "input")))
        power = r.f("exp", "exp", x, "input")
        return r("output", r("result", r("scaled", g * power) / r("denominator", power + 1)))
    if operator == "silu":
        if variant == "once":
            sigmoid = r.f("sigmoid", "sigmoid", x, "input")
        else:
            sigmoid = r("sigmoid", 1 / r("denominator", r.f("exp", "exp", -x, "input") + 1))
        shifted = r("shifted", r("weighted", x * r("complement", 1 - sigmoid)) + 1)
        return r("output", r("result", r("scaled", g * sigmoid) * shifted))
    square = r("square", x * x)
    if variant == "erf":
        inner = r.f("erf", "erf", r("scaled", x * rounded(0.5**0.5, r.formats["input"])), "scaled")
        power = r.f("exp", "exp", r("exponent", -square / 2), "exponent")
        density = r("density", power * rounded(float(np.sqrt(0.5 / np.pi)), r.formats["exp"]))
        weighted = r("weighted", x * density)
    else:
        cubic = r("cubic", r("cube", square * x) * rounded(0.044715, r.formats["cube"]))
        root = float(np.sqrt(2 / np.pi))
        scaled = r("scaled", r("inner", x + cubic) * rounded(root, r.formats["inner"]))
        inner = r.f("tanh", "tanh", scaled, "scaled")
        through = r("through_tanh", r("half", x / 2) * r("tanh_slope", 1 - r("tanh_square", inner * inner)))
        tripled = r("tripled_shifted", r("tripled", square * rounded(3 * 0.044715, r.formats["square"])) + 1)
        weighted = r("weighted", through * r("inner_slope", tripled * rounded(root, r.formats["tripled_shifted"])))
    slope = r("slope", r("distribution", r("shifted", inner + 1) / 2) + weighted)
    return r("output", r("result", g * slope))


def through_tanh(r, step, g, y):
    return r(step, g * r("slope", 1 - r("square", y * y)))


def through_sigmoid(r, g, y):
    return r("gate_gradient", r("scaled", g * r("complement", 1 - y)) * y)


def cell_gates_backward(r, kind, g, memory_gradient, left, right, hidden, memory):
    """One row: the gradients by both pre-activations, and the direct ones by hidden and cell."""
    n = len(hidden)
    if kind == "rnn":
        outputs = [r.f("activation", "tanh", r("total", a + b), "total") for a, b in zip(left, right, strict=True)]
        gates = [through_tanh(r, "gate_gradient", a, y) for a, y in zip(g, outputs, strict=True)]
        return gates, gates, None, None
    if kind == "gru":
        parts, direct = [], []
        for j in range(n):
            reset = r.f("reset", "sigmoid", r("reset_sum", left[j] + right[j]), "reset_sum")
            update = r.f("update", "sigmoid", r("update_sum", left[n + j] + right[n + j]), "update_sum")
            total = r("candidate_sum", left[2 * n + j] + r("gated", reset * right[2 * n + j]))
            candidate = r.f("candidate", "tanh", total, "candidate_sum")
            by_update = r("update_gradient", g[j] * r("difference", hidden[j] - candidate))
            direct.append(r("difference_gradient", g[j] * update))
            last = through_tanh(r, "gate_gradient", r("candidate_gradient", g[j] - direct[j]), candidate)
            by_reset = r("reset_gradient", last * right[2 * n + j])
            first = through_sigmoid(r, by_reset, reset), through_sigmoid(r, by_update, update)
            parts.append((*first, last, r("gate_gradient", last * reset)))
        resets, updates, candidates, gated = columns_of(parts)
        return resets + updates + candidates, resets + updates + gated, direct, None
    gates = [r("gates", a + b) for a, b in zip(left, right, strict=True)]
    parts, direct = [], []
    for j in range(n):
        inward, forget, outward = (
            r.f(f"{name}_gate", "sigmoid", gates[k * n + j], "gates")
            for name, k in (("input", 0), ("forget", 1), ("output", 3))
        )
        candidate = r.f("candidate", "tanh", gates[2 * n + j], "gates")
        old = r("cell", memory[j])
        updated = r("updated_cell", r("kept", forget * old) + r("new", inward * candidate))
        tanh = r.f("tanh", "tanh", updated, "updated_cell")
        total = through_tanh(r, "through_tanh", r("tanh_gradient", g[j] * outward), tanh)
        if memory_gradient is not None:
            total = r("total_cell_gradient", total + r("cell_gradient", memory_gradient[j]))
        direct.append(r("memory_gradient", total * forget))
        parts.append((
            through_sigmoid(r, r("input_gate_gradient", total * candidate), inward),
            through_sigmoid(r, r("forget_gate_gradient", total * old), forget),
            through_tanh(r, "gate_gradient", r("candidate_gradient", total * inward), candidate),
            through_sigmoid(r, r("output_gate_gradient", g[j] * tanh), outward),
        ))  # fmt: skip
    gates = [v for part in columns_of(parts) for v in part]
    return gates, gates, None, direct


def cell_backward(r, kind, g, memory_gradient, x, hidden, memory, weights, biases):
    """All rows: the gradients by x, hidden, cell, both weights and both biases."""
    g, x, hidden = each(r, "gradient", g), each(r, "input", x), each(r, "hidden", hidden)
    sides = [], []
    by_hidden_directly, by_memory = [], []
    for i, row in enumerate(x):
        left, right = pre_activations(r, row, hidden[i], weights, biases)
        also = None if memory_gradient is None else memory_gradient[i]
        *gates, direct, through_memory = cell_gates_backward(r, kind, g[i], also, left, right, hidden[i], memory[i])
        for side, part in zip(sides, gates, strict=True):
            side.append(part)
        by_hidden_directly.append(direct)
        by_memory.append(None if through_memory is None else [r("output", v) for v in through_memory])
    by_states, by_weights, by_biases = [], [], []
    for name, suffix, side, operand, weight in zip(
        ("input", "hidden"), ("ih", "hh"), sides, (x, hidden), weights, strict=True
    ):
        columns = columns_of(each(r, f"weight_{suffix}", weight))
        by_states.append([[r.dot(f"{name}_gradient", row, column) for column in columns] for row in side])
        by_weights.append([
            [r("output", r.dot(f"weight_{suffix}_gradient", a, b)) for b in columns_of(operand)]
            for a in columns_of(side)
        ])  # fmt: skip
        by_biases.append([r("output", r.sum(f"bias_{suffix}_gradient", column)) for column in columns_of(side)])
    by_x, by_hidden = by_states
    if kind == "gru":
        by_hidden = [
            [r("total_hidden_gradient", a + b) for a, b in zip(*rows, strict=True)]
            for rows in zip(by_hidden, by_hidden_directly, strict=True)
        ]
    memories = by_memory if kind == "lstm" else None
    return each(r, "output", by_x), each(r, "output", by_hidden), memories, *by_weights, *by_biases
