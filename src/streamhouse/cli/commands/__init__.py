"""The commands of `streamhouse`, a module per command or family."""
