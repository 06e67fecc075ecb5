"""The real data that floatsim ships: its files and their contents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["digits", "folder"]


def folder(name: str) -> Path:
    """Return the folder of a dataset: `floatsim/data/<name>` in an installed package, `data/<name>` in a checkout.

    Parameters
    ----------
    name : str
        The name of the dataset, such as "digits".

    Returns
    -------
    Path

    Raises
    ------
    FileNotFoundError
        If neither folder exists.

    Examples
    --------
    >>> from floatsim import datasets
    >>> sorted(path.name for path in datasets.folder("digits").glob("*.npz"))
    ['backward.npz', 'forward.npz']
    """
    package = Path(__file__).parent
    places = [package / "data" / name, package.parent / "data" / name]
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"the dataset {name!r} is neither in {places[0]} nor in {places[1]}; reinstall floatsim")


def digits() -> dict[str, NDArray[np.float32]]:
    """Three tensors of a small network trained on the UCI digits (origin and licence: `data/digits/README.md`).

    Returns
    -------
    dict of str to float32 array
        "activations" (512, 64), the input of the middle layer; "weights" (64, 32) of that layer; "gradients"
        (512, 32), of the mean loss by that layer's pre-activations, at the end of training.

    Examples
    --------
    >>> from floatsim import datasets
    >>> {name: x.shape for name, x in datasets.digits().items()}
    {'activations': (512, 64), 'weights': (64, 32), 'gradients': (512, 32)}
    """
    import numpy as np

    tensors: dict[str, NDArray[Any]] = {}
    for name in ("forward.npz", "backward.npz"):
        with np.load(folder("digits") / name) as arrays:
            tensors |= dict(arrays)
    return tensors
