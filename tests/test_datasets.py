"""The shipped data: found in both places, as described, small, and with its origin beside it."""

from __future__ import annotations

import numpy as np
import pytest

from floatsim import datasets

SHAPES = {"activations": (512, 64), "weights": (64, 32), "gradients": (512, 32)}


def test_digits_are_as_described():
    tensors = datasets.digits()
    assert {name: x.shape for name, x in tensors.items()} == SHAPES
    for x in tensors.values():
        assert x.dtype == np.float32
        assert np.isfinite(x).all()


def test_the_network_is_a_trained_one():
    """ReLU's activations, and gradients that are small because training is over."""
    tensors = datasets.digits()
    assert tensors["activations"].min() == 0
    size = np.abs(tensors["gradients"])
    assert size.max() < 1e-3
    assert np.median(size[size > 0]) < 1e-6


def test_origin_and_licence_are_beside_the_data():
    text = (datasets.folder("digits") / "README.md").read_text(encoding="utf-8")
    assert all(word in text for word in ("UCI", "Alpaydin", "Kaynak", "CC BY 4.0", "make_digits.py"))
    assert all(f"`{name}`" in text for name in SHAPES)
    assert sum(path.stat().st_size for path in datasets.folder("digits").iterdir()) < 1_000_000


def test_installed_package_wins_and_a_missing_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "__file__", str(tmp_path / "floatsim" / "datasets.py"))
    with pytest.raises(FileNotFoundError, match="digits"):
        datasets.folder("digits")
    checkout, installed = tmp_path / "data" / "digits", tmp_path / "floatsim" / "data" / "digits"
    checkout.mkdir(parents=True)
    assert datasets.folder("digits") == checkout
    installed.mkdir(parents=True)
    assert datasets.folder("digits") == installed
