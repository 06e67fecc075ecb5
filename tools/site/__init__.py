"""The documentation site: pages of the public names, notebooks, links. `make docs` builds it with MkDocs."""
