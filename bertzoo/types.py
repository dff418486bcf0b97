"""Names for types that have no common class."""

from typing import Any, TypeAlias

# A tensor of the backend in use, or a symbolic `keras.KerasTensor`.
Tensor: TypeAlias = Any

# Hugging Face's values of `problem_type`.
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
PROBLEM_TYPES = (SINGLE_LABEL, MULTI_LABEL, REGRESSION)
