"""One file for each command of `bertzoo`."""
