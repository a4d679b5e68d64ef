"""Records over HTTP: formats, cursors, uploads and streams; `routes` has their paths."""
