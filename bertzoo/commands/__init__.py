"""The commands of `bertzoo`, one a file; none imports Keras before it runs."""
