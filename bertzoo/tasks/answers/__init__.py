"""From a model's outputs to what users read, in NumPy alone: tasks and the server answer with the same functions."""
