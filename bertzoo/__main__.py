"""`python -m bertzoo`: the `bertzoo` command, where scripts are not on the path."""

from bertzoo.cli.main import main

main()
