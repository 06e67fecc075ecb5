"""The explorer: one offline HTML page on which number formats can be clicked, and its arithmetic in JavaScript."""

from floatsim._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, {".page": "Explorer explorer page_data page_html"})
