"""`bertzoo bench`: this library and its peers, the same work in the same run."""
