"""Records on HTTP: bytes in other forms, cursors, uploads and streams; `routes` has their paths."""
