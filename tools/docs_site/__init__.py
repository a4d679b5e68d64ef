"""The documentation site: README.md and docs/ as HTML, built by Sphinx. `make docs` runs it."""
