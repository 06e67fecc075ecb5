"""The explorer: one offline HTML page on which number formats can be clicked, and its arithmetic in JavaScript."""

from floatsim.explorer.page import Explorer, explorer, page_data, page_html

__all__ = ["Explorer", "explorer", "page_data", "page_html"]
