"""The command that installs the libraries of an extra, for error messages."""

from __future__ import annotations

__all__ = ["REQUIREMENTS", "install_command"]

REQUIREMENTS = {
    "cuda12x": ("cupy-cuda12x[ctk]>=14.0.1,!=14.1.0",),
    "cuda13x": ("cupy-cuda13x[ctk]>=14.0.1,!=14.1.0",),
    "jax": ("jax>=0.5",),
    "pandas": ("pandas>=2.2.2",),
    "safetensors": ("safetensors>=0.4",),
    "torch": ("torch>=2.7",),
    "triton": ("torch>=2.7", "triton>=3.8,<3.10"),
}
"""The requirements of the extras that messages name, as in pyproject.toml. The tests compare them."""


def install_command(extra: str) -> str:
    """Return the command that installs the libraries of an extra, and the extra's name.

    The command names the libraries and not floatsim. So it works in a clone, with an installed wheel, and wherever
    floatsim itself comes from.

    Parameters
    ----------
    extra : str
        A key of `REQUIREMENTS`.

    Raises
    ------
    KeyError
        For another name.

    Examples
    --------
    >>> install_command("torch")
    'pip install "torch>=2.7" (extra `torch` of floatsim)'
    """
    libraries = " ".join(f'"{requirement}"' for requirement in REQUIREMENTS[extra])
    return f"pip install {libraries} (extra `{extra}` of floatsim)"
