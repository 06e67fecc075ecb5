"""Pictures with sliders, where there is someone to move them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["explore"]


def explore(draw: Callable[..., Any], **controls: Any) -> None:
    """Calls `draw` again whenever one of its arguments is changed with a slider, a menu or a box.

    That takes a notebook and ipywidgets, whose `interact` it is. Elsewhere `draw` is called once, and a line is
    printed that says what is missing.

    Parameters
    ----------
    draw : callable
        Draws or prints; what it returns is not shown. Its keyword arguments are the names of `controls`.
    **controls
        For each argument what ipywidgets makes a control of: a list of choices, (low, high) or (low, high, step) for a
        slider, a bool for a box, a str for a field. Where nothing can be moved, the first choice, the low end, the
        bool or the str is what is drawn.

    Raises
    ------
    ValueError
        If there is no control, or one has no value.

    Examples
    --------
    >>> from floatsim import plot
    >>> plot.explore(lambda fmt: print("a picture of", fmt), fmt=["fp16", "bf16"])
    a picture of fp16
    To choose fmt, run this in a notebook (Jupyter, VS Code) with ipywidgets: pip install ipywidgets
    """
    first = {name: _first(name, control) for name, control in controls.items()}
    if not first:
        raise ValueError("explore needs at least one control, such as fmt=['fp16', 'bf16']; got none")
    interact = _interact()
    if interact is not None:
        interact(lambda **chosen: _only(draw(**chosen)), **controls)  # whatever other arguments `draw` may have
        return
    draw(**first)
    names = ", ".join(first)
    print(f"To choose {names}, run this in a notebook (Jupyter, VS Code) with ipywidgets: pip install ipywidgets")


def _first(name: str, control: Any) -> Any:
    if isinstance(control, list | tuple | range):
        if not control:
            raise ValueError(f"the control {name} must have at least one value, such as [1, 2]; got {control!r}")
        return control[0]
    return control


def _only(_: Any) -> None:
    """Nothing, so that an Axes, say, is not shown a second time as text."""


def _interact() -> Any:
    """ipywidgets' interact, if it is installed and this is a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    try:
        from ipywidgets import interact
    except ImportError:
        return None
    return interact
