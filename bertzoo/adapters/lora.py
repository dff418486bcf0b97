"""LoRA: training a few small matrices beside the large ones (Hu et al. 2022)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import flatten_layers, layer_attributes, own_trainable_weights, replace_sublayer
from bertzoo.checkpoints.loading import map_weights_to_tensors, weights_by_name
from bertzoo.checkpoints.names import use_module_names
from bertzoo.random import get_seed, numpy_generator
from bertzoo.types import Tensor

# The projections of queries and values (section 4.2 of the paper), as PEFT's choice where it has one.
TARGETS = {
    "bert": ("query", "value"),
    "deberta": ("in_proj",),
    "deberta-v2": ("query_proj", "value_proj"),
    "distilbert": ("q_lin", "v_lin"),
    "eurobert": ("q_proj", "v_proj"),
    "gte": ("q_proj", "v_proj"),
    "modernbert": ("Wqkv",),
    "mpnet": ("q", "v"),
    "nomic_bert": ("q_proj", "v_proj"),
}


@keras.saving.register_keras_serializable("bertzoo")
class LoRADense(keras.layers.Layer):
    """A dense layer with factors: x -> dense(x) + scale × (x A) B, for each part of its output (section 4.1).

    Args:
        dense: The built layer; its weights are frozen.
        ranks_and_scales: Rank and scale of the factors for each part of the kernel; None for a part without factors.
        module_names: The Hugging Face module of each part, from whose name the initial A is drawn. B starts at 0.
        widths: The parts' relative widths; all are as wide where None.
    """

    def __init__(
        self,
        dense: keras.layers.Dense,
        ranks_and_scales: Sequence[tuple[int, float] | None],
        module_names: Sequence[str],
        widths: Sequence[int] | None = None,
        **kwargs: Any,
    ):
        # The factors of a quantized layer are not quantized.
        policy = dense.dtype_policy
        if dense.quantization_mode is not None:
            policy = policy.name.rpartition("_from_")[2]
        super().__init__(name=f"{dense.name}_lora", dtype=policy, **kwargs)
        # Lists: blocks whose tuples differ would be traced one by one.
        self.dense, self.module_names = dense, list(module_names)
        self.scales = [own and own[1] for own in ranks_and_scales]
        for weight in dense.weights:
            weight.trainable = False
        inner, widths = dense.kernel.shape[0], [1] * len(module_names) if widths is None else widths
        self.outer = [width * dense.kernel.shape[1] // sum(widths) for width in widths]
        self.factors: list[tuple[keras.Variable, keras.Variable] | None] = []
        for i, (own, module, outer) in enumerate(zip(ranks_and_scales, module_names, self.outer)):
            if own is None:
                self.factors.append(None)
                continue
            rank = own[0]
            # As Kaiming's uniform numbers with a = √5, which PEFT draws: ±1/√inner.
            draws = numpy_generator(get_seed(), ("lora", module)).uniform(-1, 1, (inner, rank)) / np.sqrt(inner)
            a = self.add_weight(name=f"lora_a_{i}", shape=(inner, rank), initializer="zeros")
            a.assign(draws.astype("float32"))
            self.factors.append((a, self.add_weight(name=f"lora_b_{i}", shape=(rank, outer), initializer="zeros")))
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        y, products = self.dense(x), []
        for factors, scale, outer in zip(self.factors, self.scales, self.outer):
            if factors is None:
                products.append(ops.zeros((*ops.shape(x)[:-1], outer), y.dtype))
            else:
                products.append(ops.cast(scale, y.dtype) * ops.matmul(ops.matmul(x, factors[0]), factors[1]))
        return y + (products[0] if len(products) == 1 else ops.concatenate(products, axis=-1))

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return self.dense.compute_output_shape(input_shape)

    def merged_kernel(self) -> np.ndarray:
        """The kernel with the product of the factors added, float32 (in, out).

        Raises:
            ValueError: The kernel is quantized.
        """
        if self.dense.quantization_mode is not None:
            raise ValueError(
                f"{self.dense.path} is quantized ({self.dense.quantization_mode}), and factors can't be added to it "
                "exactly: save the adapter with save_adapter, and merge it into the model as it was before quantize."
            )
        kernel = np.array(ops.convert_to_numpy(self.dense.kernel), dtype="float32")
        for i, factors in enumerate(self.factors):
            if factors is not None:
                a, b = (np.asarray(ops.convert_to_numpy(factor), dtype="float32") for factor in factors)
                start = sum(self.outer[:i])
                kernel[:, start : start + self.outer[i]] += self.scales[i] * (a @ b)
        return kernel

    def merge(self) -> None:
        """Adds the product of the factors to the kernel; raises ValueError if it is quantized."""
        self.dense.kernel.assign(self.merged_kernel())


class _DenseLayer(NamedTuple):
    """A dense layer of an encoder: the layer that has it as an attribute, and the Hugging Face modules that its kernel
    joins."""

    owner: keras.layers.Layer
    attribute: str
    dense: keras.layers.Dense
    modules: tuple[str, ...]
    widths: tuple[int, ...]


def find_dense_layers(encoder: keras.Model) -> list[_DenseLayer]:
    """All dense layers of an encoder.

    Raises:
        ValueError: It has LoRA factors.
    """
    if lora_layers(encoder):
        raise ValueError("the model has LoRA factors already: merge_lora puts them into its weights.")
    weights = weights_by_name(encoder)
    named = use_module_names(map_weights_to_tensors(encoder, encoder, ()), encoder.family, encoder.config)
    entries = {id(weights[entry.keras_name]): entry for entry in named}
    layers = []
    for owner, name, dense in _attributes(encoder, keras.layers.Dense):
        entry = entries.get(id(dense.kernel))
        modules = () if entry is None else tuple(name.removesuffix(".weight") for name in entry.hf_names)
        layers.append(_DenseLayer(owner, name, dense, modules, () if entry is None else entry.widths))
    return layers


def enable_lora(
    task: keras.Model,
    rank: int = 8,
    alpha: float = 16.0,
    targets: Sequence[str] | str | None = None,
    train_head: bool = True,
    *,
    use_rslora: bool = False,
    rank_pattern: Mapping[str, int] | None = None,
    alpha_pattern: Mapping[str, float] | None = None,
) -> None:
    """Freezes a task's encoder and adds trainable low-rank factors to some of its dense layers.

    Call it before `compile`.

    Args:
        task: A task, or an `Encoder`.
        rank: Inner size of the factors.
        alpha: The factors' product is scaled by alpha / rank.
        targets: The last parts of names of Hugging Face modules, such as "query", "value", "dense"; or, as one string,
            a regular expression for full names, as in PEFT. Fused projections get separate factors. By default the
            projections of queries and values.
        train_head: Train the head too, and save it with the adapter.
        use_rslora: Scale by alpha / √rank (Kalajdzievski 2023).
        rank_pattern, alpha_pattern: The rank or alpha of single modules, by name or the last parts of it.

    Raises:
        ValueError: A rank is below 1, there is LoRA already, or no layer has such a name.
        re.error: `targets` is no regular expression.

    Example:
        >>> classifier = bz.TextClassifier.from_preset("bert_mini_en", labels=2, verbose=False)
        >>> bz.adapters.enable_lora(classifier, rank=4)
        >>> len(classifier.trainable_weights) < len(classifier.weights)
        True
    """
    encoder = getattr(task, "backbone", task)
    ranks, alphas = dict(rank_pattern or {}), dict(alpha_pattern or {})
    _check_ranks(rank, *ranks.values())
    if targets is None:
        targets = TARGETS.get(encoder.family.model_type, TARGETS["bert"])
    prefix = encoder.family.prefix if encoder is not task else ""
    layers = find_dense_layers(encoder)
    names = [prefix + module for layer in layers for module in layer.modules]
    adapted = _matching(names, targets)

    def settings(name: str) -> tuple[int, float] | None:
        """The rank and the scale of a module's factors."""
        if name not in adapted:
            return None
        own_rank = int(_by_name(ranks, name, rank))
        return own_rank, _by_name(alphas, name, alpha) / (own_rank**0.5 if use_rslora else own_rank)

    with undo_lora_on_failure(task):  # running out of memory is one
        replacements = []
        for layer in layers:
            own = [settings(prefix + module) for module in layer.modules]
            if any(own):
                replacements.append((layer, LoRADense(layer.dense, own, layer.modules, layer.widths)))
        for weight in encoder.weights if train_head else task.weights:
            weight.trainable = False
        for layer, replacement in replacements:
            replace_sublayer(layer.owner, layer.attribute, replacement)
    _forget_compiled(task)
    encoder.lora = {
        "rank": int(rank),
        "alpha": alpha,
        # Files keep names, since another's expression may take for ever.
        "targets": adapted if isinstance(targets, str) else list(targets),
        "train_head": train_head,
        "use_rslora": use_rslora,
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
    }


def merge_lora(task: keras.Model) -> None:
    """Adds the factors to the weights, which then compute the same without them and can be saved as a preset. All
    weights train again, but those of frozen layers, once `compile` has been called anew.

    Raises:
        ValueError: There are none.
    """
    for layer in require_lora_layers(task):
        layer.merge()
    _remove_lora(task)
    for layer in flatten_layers(task):
        for weight in own_trainable_weights(layer):
            weight.trainable = layer.trainable


def _remove_lora(task: keras.Model) -> None:
    """Takes the factors away; the dense layers compute as before them, and their weights stay frozen."""
    encoder = getattr(task, "backbone", task)
    for owner, attribute, layer in _attributes(encoder, LoRADense):
        replace_sublayer(owner, attribute, layer.dense)
    _forget_compiled(task)
    encoder.lora = None


@contextmanager
def undo_lora_on_failure(task: keras.Model) -> Iterator[None]:
    """Within it, a failure removes the factors that were added, and restores which weights train."""
    trainable, had_lora = [(weight, weight.trainable) for weight in task.weights], bool(lora_layers(task))
    try:
        yield
    except BaseException:
        if lora_layers(task) and not had_lora:
            _remove_lora(task)
        for weight, was_trainable in trainable:
            weight.trainable = was_trainable
        raise


def lora_layers(task: keras.Model) -> list[LoRADense]:
    """The layers with factors."""
    return [layer for layer in flatten_layers(task) if isinstance(layer, LoRADense)]


def require_lora_layers(task: keras.Model) -> list[LoRADense]:
    """The layers with factors.

    Raises:
        ValueError: There are none.
    """
    layers = lora_layers(task)
    if not layers:
        raise ValueError("the model has no LoRA factors: call enable_lora first.")
    return layers


def lora_factors_by_module(task: keras.Model) -> dict[str, tuple[keras.Variable, keras.Variable]]:
    """Hugging Face's module -> its two factors, (inner, rank) and (rank, outer)."""
    pairs = ((module, pair) for layer in lora_layers(task) for module, pair in zip(layer.module_names, layer.factors))
    return {module: pair for module, pair in pairs if pair is not None}


def _is_called(module: str, name: str) -> bool:
    return module == name or module.endswith(f".{name}")


def _check_ranks(*ranks: Any) -> None:
    for rank in ranks:
        if type(rank) is bool or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise ValueError(f"rank must be a whole number of at least 1. Received: {rank!r}.")


def _matching(names: Sequence[str], targets: Sequence[str] | str) -> list[str]:
    """The names of modules that `targets` selects; see `enable_lora`."""
    if isinstance(targets, str):
        matching = [name for name in names if re.fullmatch(targets, name)]
    else:
        matching = [name for name in names if any(_is_called(name, target) for target in targets)]
    if not matching:
        expected = targets if isinstance(targets, str) else ", ".join(targets)
        endings = ", ".join(sorted({name.split(".")[-1] for name in names}))
        raise ValueError(f"no layer of the encoder is called {expected}; modules end in {endings}.")
    return matching


def _by_name(values: Mapping[str, Any], module: str, default: Any) -> Any:
    """The value of the first name that is the module's or the end of it."""
    return next((value for name, value in values.items() if _is_called(module, name)), default)


def _forget_compiled(task: keras.Model) -> None:
    # TensorFlow's compiled functions would go on with the layers that were there when they were made.
    task.train_function = task.test_function = task.predict_function = None
    task.compiled = False  # its optimizer has the moments of other weights


def _attributes(encoder: keras.Model, kind: type) -> list[tuple[keras.layers.Layer, str, Any]]:
    """(layer, attribute, its value) for every attribute that is a layer of a kind."""
    owners = [owner for owner in flatten_layers(encoder) if not isinstance(owner, LoRADense)]
    return [(o, name, value) for o in owners for name, value in layer_attributes(o) if isinstance(value, kind)]
