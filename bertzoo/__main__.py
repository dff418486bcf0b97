"""`python -m bertzoo`: the `bertzoo` command."""

from bertzoo.cli.main import main

main()
