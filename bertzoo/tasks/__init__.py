"""One file for each task: a head on an encoder, its loss, and its answers."""
