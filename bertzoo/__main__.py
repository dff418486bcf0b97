"""`python -m bertzoo`: the `bertzoo` command, where scripts are not on the path."""

from bertzoo.cli import main

main()
