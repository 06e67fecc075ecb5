"""The enums, their names, and the resolution of keywords and contexts."""

import itertools
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import floatsim as fs
from floatsim import Overflow, Rounding, Tininess

MODES = {
    Rounding.TIES_TO_EVEN: ("ties_to_even", "RNE"), Rounding.TIES_TO_AWAY: ("ties_to_away", "RNA"),
    Rounding.TOWARD_ZERO: ("toward_zero", "RTZ"), Rounding.TOWARD_POSITIVE: ("toward_positive", "RTP"),
    Rounding.TOWARD_NEGATIVE: ("toward_negative", "RTN"), Rounding.TO_ODD: ("to_odd", "RTO"),
    Rounding.STOCHASTIC: ("stochastic", "SR"),
}  # fmt: skip
X = np.array([0.1, 1 / 3, -0.7, 1e6, -1e6, 5e-8, 2.0**-25])


def test_every_mode_has_its_two_names():
    assert list(MODES) == list(Rounding)
    for mode, names in MODES.items():
        for name in (mode, *names, names[0].upper(), names[0].replace("_", "-"), names[1].lower(), f" {names[0]} "):
            want = fs.encode(X, "fp16", rounding=mode, seed=1)
            assert (fs.encode(X, "fp16", rounding=name, seed=1) == want).all()


@pytest.mark.parametrize(("kind", "argument"), [(Overflow, "overflow"), (Tininess, "tininess")])
def test_names_of_policies(kind, argument):
    for member in kind:
        want = fs.encode(X, "e4m3", return_flags=True, **{argument: member})
        got = fs.encode(X, "e4m3", return_flags=True, **{argument: member.name.lower()})
        assert all((a == b).all() for a, b in zip(got, want, strict=True))


def test_every_member_is_documented():
    """A docstring under each member, in the source."""
    import ast
    import inspect

    from floatsim.formats import rounding

    for node in ast.parse(inspect.getsource(rounding)).body:
        if isinstance(node, ast.ClassDef) and node.name in ("Rounding", "Overflow", "Tininess"):
            body = node.body
            for member, after in itertools.pairwise(body):
                if isinstance(member, ast.Assign):
                    assert isinstance(after, ast.Expr), f"{node.name}.{member.targets[0].id} has no docstring"


def test_flag_values():
    assert (fs.INVALID, fs.DIVIDE_BY_ZERO, fs.OVERFLOW, fs.UNDERFLOW, fs.INEXACT) == (16, 8, 4, 2, 1)


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"rounding": "ties_to_evne"}, ValueError, "did you mean 'ties_to_even'"),
        ({"rounding": "nearest"}, ValueError, "rounding='nearest'"), ({"rounding": 1}, TypeError, "rounding"),
        ({"rounding": Overflow.INFINITY}, TypeError, "rounding"), ({"overflow": "saturate"}, ValueError, "overflow"),
        ({"overflow": True}, TypeError, "overflow"), ({"tininess": "during"}, ValueError, "tininess"),
        ({"daz": 1}, TypeError, "daz"), ({"ftz": "yes"}, TypeError, "ftz"),
        ({"sead": 1}, TypeError, "did you mean 'seed'"),
        ({"saturate": True}, TypeError, "unknown keyword 'saturate'"), ({"return_flags": 1}, TypeError, "return_flags"),
        ({"seed": 1.5}, TypeError, "seed"), ({"seed": -1}, ValueError, "seed"), ({"seed": 2**64}, ValueError, "seed"),
        ({"seed": True}, TypeError, "seed"), ({"random_bits": 0}, ValueError, "random_bits"),
        ({"random_bits": 65}, ValueError, "random_bits"), ({"random_bits": 1.5}, TypeError, "random_bits"),
        ({"offset": -1}, ValueError, "offset"), ({"offset": 0.5}, TypeError, "offset"),
        ({"backend": "cuda"}, TypeError, "backend"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_keywords(keywords, error, text):
    x = fs.array(X, "fp16")
    for call in (
        lambda: fs.encode(X, "fp16", **keywords),
        lambda: fs.convert(x, "bf16", **keywords),
        lambda: fs.quantize(X, "fp16", **keywords),
        lambda: fs.add(x, x, **keywords),
        lambda: fs.sqrt(x, **keywords),
        lambda: fs.to_integer(x, np.int32, **keywords),
        lambda: fs.rint(x, **keywords),
    ):
        with pytest.raises(error, match=text):
            call()


def test_context_sets_defaults_and_keywords_win():
    truncated, up = fs.encode(X, "fp16", rounding="RTZ"), fs.encode(X, "fp16", rounding="RTP")
    nearest = fs.encode(X, "fp16")
    with fs.context(rounding="RTZ") as inner:
        assert inner.rounding is Rounding.TOWARD_ZERO
        assert fs.get_context() is inner
        assert (fs.encode(X, "fp16") == truncated).all()
        assert (fs.encode(X, "fp16", rounding="RTP") == up).all()
        assert (fs.encode(X, "fp16", rounding=None) == truncated).all()
        with fs.context(overflow="saturate_finite"):
            assert (fs.encode(X, "fp16") == fs.encode(X, "fp16", rounding="RTZ", overflow="saturate_finite")).all()
        assert (fs.encode(X, "fp16") == truncated).all()
    assert (fs.encode(X, "fp16") == nearest).all()
    with pytest.raises(ZeroDivisionError), fs.context(rounding="RTZ"):
        raise ZeroDivisionError
    assert fs.get_context().rounding is Rounding.TIES_TO_EVEN


def test_context_reaches_operators_and_ufuncs():
    a, b = fs.array([1.0], "fp16"), fs.array([2.0**-24], "fp16")
    with fs.context(rounding="toward_positive"):
        assert (a + b).codes == 0x3C01
        assert np.add(a, b).codes == 0x3C01
        assert np.add(a, b).codes == fs.add(a, b).codes
    assert (a + b).codes == 0x3C00
    with fs.context(daz=True):
        assert fs.sqrt(b).codes == 0
        assert fs.equal(b, 0.0).all()
    with fs.context(ftz=True):
        assert fs.multiply(b, 1.0).codes == 0


def test_a_context_belongs_to_its_thread():
    seen = []
    with fs.context(rounding="RTZ"):
        thread = threading.Thread(target=lambda: seen.append(fs.get_context().rounding))
        thread.start()
        thread.join()
    assert seen == [Rounding.TIES_TO_EVEN]


@pytest.fixture
def caught():
    """The warnings of a test, each time one is emitted."""
    with warnings.catch_warnings(record=True, action="always") as found:
        yield found


def stochastic_calls(n=3, **keywords):
    return [fs.encode(X, "fp16", **keywords).tobytes() for _ in range(n)]


def test_repeated_draws_of_the_context_warn_once(caught):
    """The draws stay those of the seed at each call; the second call warns, and names the user's line."""
    want = fs.encode(X, "fp16", rounding="SR", seed=1).tobytes()
    with fs.context(rounding="SR", seed=1):
        assert stochastic_calls(1) == [want]
        assert not caught
        assert stochastic_calls() == [want] * 3
    assert [w.category for w in caught] == [fs.FloatsimWarning]
    assert "seed=1 of the context" in str(caught[0].message)
    assert "fs.context(seed=fs.RandomStream(1))" in str(caught[0].message)
    assert Path(caught[0].filename) == Path(__file__)


def test_every_block_with_a_seed_warns_once(caught):
    for seed in (1, 1, np.int64(2)):
        with fs.context(rounding="SR", seed=seed):
            stochastic_calls()
    assert len(caught) == 3


def test_a_nested_context_uses_the_seed_of_the_outer_one(caught):
    with fs.context(rounding="SR", seed=1):
        stochastic_calls(1)
        with fs.context(ftz=True):
            stochastic_calls(1)
        assert len(caught) == 1
        with fs.context(seed=2):
            stochastic_calls(1)
        with fs.context(seed=fs.RandomStream(1)):
            stochastic_calls()
        stochastic_calls()
    assert len(caught) == 1


@pytest.mark.parametrize("call", [
    lambda x: x + x,
    lambda x: np.add(x, x),
    lambda x: fs.matmul(x, x),
    lambda x: fs.sum(x, accumulate="sequential(fp16, rounding=sr)", rounding="RNE"),
    lambda x: x.mean(),
])  # fmt: skip
def test_every_kind_of_call_counts_once(call, caught):
    x = fs.array([1.0, 0.1], "fp16")
    with fs.context(rounding="SR", seed=1):
        call(x)
        assert not caught
        call(x)
    assert [Path(w.filename) for w in caught] == [Path(__file__)]


@pytest.mark.parametrize("keywords", [
    {"seed": 1}, {"seed": fs.RandomStream(1)}, {"rounding": "RTZ"}, {"offset": 5},
], ids=str)  # fmt: skip
def test_calls_that_choose_their_draws_do_not_warn(keywords, caught):
    with fs.context(rounding="SR", seed=1):
        stochastic_calls(**keywords)
    with fs.context(rounding="SR", seed=fs.RandomStream(1)):
        assert len(set(stochastic_calls())) == 3
    with fs.context(seed=1):
        stochastic_calls()
    assert not caught


def test_a_public_call_of_several_roundings_is_one_call(caught):
    with fs.context(rounding="SR", seed=1):
        fs.survey(np.eye(4), formats=["fp16", "bf16"], accumulators=["fp16", "fp32"])
        stochastic_calls(1)
    assert not caught


def test_a_missing_seed_recommends_a_stream():
    with pytest.raises(ValueError, match=r"needs a seed: pass seed=1.*fs\.context\(seed=fs\.RandomStream\(1\)\)"):
        fs.encode(X, "fp16", rounding="SR")


def test_bind_context_takes_the_defaults_to_other_threads():
    with fs.context(rounding="RTZ"):
        bound = fs.bind_context(fs.get_context)
    with ThreadPoolExecutor(4) as pool:
        assert {c.rounding for c in pool.map(lambda _: bound(), range(40))} == {Rounding.TOWARD_ZERO}
        assert pool.submit(fs.get_context).result().rounding is Rounding.TIES_TO_EVEN
    assert fs.get_context().rounding is Rounding.TIES_TO_EVEN


def test_bind_context_runs_in_several_threads_at_once():
    """A copy of the context variables can be entered by one thread at a time: each call has its own."""
    both = threading.Barrier(2, timeout=60)

    def inside(mode):
        with fs.context(overflow="saturate_finite"):
            both.wait()
            assert fs.get_context().rounding is mode
        return fs.get_context().overflow

    with fs.context(rounding="RTP"):
        bound = fs.bind_context(inside)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(bound, [Rounding.TOWARD_POSITIVE] * 2))
    assert found == [Overflow.INFINITY] * 2


def test_bind_context_keeps_the_name_and_passes_arguments():
    def scaled(x, *, by=2):
        """Scale."""
        return x * by

    bound = fs.bind_context(scaled)
    assert (bound.__name__, bound.__doc__, bound(3), bound(3, by=5)) == ("scaled", "Scale.", 6, 15)
    with pytest.raises(ZeroDivisionError):
        fs.bind_context(lambda: 1 // 0)()


def test_threads_share_the_count_of_draws(caught):
    with fs.context(rounding="SR", seed=1), ThreadPoolExecutor(4) as pool:
        list(pool.map(fs.bind_context(lambda _: stochastic_calls(1)), range(20)))
    assert [w.category for w in caught] == [fs.FloatsimWarning]


def test_bad_contexts():
    for keywords, error, text in (
        ({"rouding": "RNE"}, TypeError, "did you mean 'rounding'"), ({"rounding": "x"}, ValueError, "rounding"),
        ({"return_flags": True}, TypeError, "return_flags"), ({"backend": "gpu"}, ValueError, "backend"),
    ):  # fmt: skip
        with pytest.raises(error, match=text), fs.context(**keywords):
            pass
    assert fs.get_context() == fs.get_context().__class__()


@pytest.mark.parametrize(("keyword", "word", "name"), [
    ("rounding", "nearest", "ties_to_even"), ("rounding", "nearest-even", "ties_to_even"),
    ("rounding", "Half Up", "ties_to_away"), ("rounding", "floor", "toward_negative"),
    ("rounding", "ceil", "toward_positive"), ("rounding", "truncate", "toward_zero"), ("rounding", "odd", "to_odd"),
    ("rounding", "toward_zer", "toward_zero"), ("overflow", "clip", "saturate_finite"),
    ("overflow", "saturate", "saturate_finite"), ("overflow", "inf", "infinity"),
])  # fmt: skip
def test_words_of_other_libraries_are_suggestions(keyword, word, name):
    with pytest.raises(ValueError, match=f"did you mean '{name}'") as caught:
        fs.encode(1.0, "fp16", **{keyword: word})
    note = '"RTN" is toward negative here' in str(caught.value)
    assert note == (keyword == "rounding")
    fs.encode(1.0, "fp16", **{keyword: name})
