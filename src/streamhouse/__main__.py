"""`python -m streamhouse` is the command line."""

from streamhouse.cli.main import main

main()
