"""Replaced-token detection: a small generator fills in masks, a discriminator finds them (Clark et al. 2020)."""

from pathlib import Path
from typing import Any

import keras
from keras import ops

from bertzoo.checkpoints.loading import weights_by_name
from bertzoo.layers.base import build_dense
from bertzoo.layers.deberta import MaskedEmbeddings
from bertzoo.layers.embeddings import Embeddings
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.pretraining.masked_training import MaskedTraining, Scores, is_correct
from bertzoo.random import Salt, fold_in, get_seed, random_bits, step_key
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.pretraining_heads import ReplacedTokenDetector
from bertzoo.text.masking import Masking
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.types import Tensor

SHARING = ("plain", "disentangled")
BLOCK = 128  # tokens
BINS, LIMIT = 2048, 10.0  # of LogitAuc


def generator_config(config: EncoderConfig, width_fraction: float = 0.25, depth_fraction: float = 1.0) -> EncoderConfig:
    """The configuration of a generator that shares the discriminator's embeddings.

    Args:
        config: The discriminator's configuration.
        width_fraction: The generator's width as a fraction of the discriminator's.
        depth_fraction: The generator's depth as a fraction of the discriminator's.

    Raises:
        ValueError: A fraction is not above 0, or the width is not a multiple of the heads.
    """
    if width_fraction <= 0 or depth_fraction <= 0:
        raise ValueError(
            f"the generator's fractions must be above 0. Received: {width_fraction} of the width, "
            f"{depth_fraction} of the depth."
        )
    width = round(width_fraction * config.hidden_size)
    return config.replace(
        hidden_size=width,
        num_hidden_layers=max(1, round(depth_fraction * config.num_hidden_layers)),
        num_attention_heads=max(1, width // 64),
        intermediate_size=4 * width,
    )


class ReplacedTokenTraining(MaskedTraining):
    """A generator and a discriminator that share the token, position and segment tables and their normalisation.

    The generator predicts masked tokens. Tokens sampled from its predictions replace them, and the discriminator
    predicts for every token whether it was replaced. No gradient passes through the sampling. The loss is the
    generator's, a mean over masked tokens, plus `discriminator_weight` times the discriminator's, a mean over
    non-padding tokens.

    Inputs: those of an encoder, `mask_positions` and `mask_labels`, int (batch, predictions), and `mask_weights`, float
    (batch, predictions), as `mask_batch` returns them. Outputs: `masked_lm`, logits (batch, predictions, vocabulary);
    `rtd`, logits (batch, length); `replaced`, int (batch, length), 1 where the token differs from the original; and
    `token_ids` (batch, length), the discriminator's input.

    Args:
        discriminator_config: The discriminator's configuration.
        generator_config: The generator's configuration; see `generator_config`.
        tokenizer: Saved with the presets.
        masking: The masking; by default ELECTRA's: 15 %, of which 85 % become [MASK] and the others stay.
        discriminator_weight: Weight of the discriminator's loss.
        sharing: "plain", or "disentangled" as in DeBERTa v3, where the discriminator's loss does not update the
            generator's tables; see `GradientDisentangledEmbeddings`.
        options: `dropout`, `attention_dropout`, `remat` and `dtype` of both encoders.

    Raises:
        ValueError: The family lacks one of the heads, or the embeddings differ in shape.
    """

    score_names = ("masked_lm_loss", "masked_accuracy", "rtd_loss")
    recipe = {"learning_rate": 5e-4, "weight_decay": 0.01, "epsilon": 1e-6, "warmup": 0.01}

    def __init__(
        self,
        discriminator_config: EncoderConfig,
        generator_config: EncoderConfig,
        tokenizer: Tokenizer,
        masking: Masking | None = None,
        discriminator_weight: float = 50.0,
        sharing: str = "plain",
        **options: Any,
    ):
        dtype = options.get("dtype")
        masking = masking or Masking.for_tokenizer(tokenizer, mask_prob=0.85, random_prob=0.0)
        super().__init__(masking, name="replaced_token_training", dtype=dtype)
        if (
            generator_config.embedding_size != discriminator_config.embedding_size
            or generator_config.vocab_size != discriminator_config.vocab_size
        ):
            raise ValueError(
                f"generator and discriminator share their embeddings: vocab_size and embedding_size must agree. "
                f"Received: {generator_config.vocab_size}, {generator_config.embedding_size} and "
                f"{discriminator_config.vocab_size}, {discriminator_config.embedding_size}."
            )
        if sharing not in SHARING:
            raise ValueError(f"sharing must be one of {', '.join(SHARING)}. Received: {sharing!r}.")
        if sharing == "disentangled":
            generator_encoder = Encoder(generator_config, False, name="generator", **options)
            shared = GradientDisentangledEmbeddings(generator_encoder.embeddings, discriminator_config.hidden_size)
            encoder = Encoder(discriminator_config, False, embeddings=shared, **options)
        else:
            encoder = Encoder(discriminator_config, False, **options)
            shared = SharedEmbeddings(encoder.embeddings, generator_config.hidden_size)
            generator_encoder = Encoder(generator_config, False, embeddings=shared, name="generator", **options)
        self.discriminator = ReplacedTokenDetector(encoder, tokenizer, dtype=dtype)
        self.generator = MaskedLM(generator_encoder, tokenizer, masking, dtype=dtype)
        self.weight, self.seed = discriminator_weight, get_seed()
        self.auc = LogitAuc(name="rtd_auc")
        self.built = True

    @property
    def backbone(self) -> Encoder:
        """The discriminator's encoder, which is the one to fine-tune."""
        return self.discriminator.backbone

    def call(self, inputs: dict[str, Tensor], training: bool = False) -> dict[str, Tensor]:
        inputs = dict(inputs)
        positions, labels, masked = (inputs.pop(f"mask_{name}") for name in ("positions", "labels", "weights"))
        if training:
            key = self.backbone.step.next_key()
        else:  # derived from the batch, so that it does not depend on earlier evaluations
            key = step_key(self.seed, ops.cast(ops.sum(inputs["token_ids"]), "int32"))
        # A key for each network and head; None at inference, where nothing drops.
        key_of = (lambda salt: fold_in(key, salt)) if training else lambda salt: None
        head, encoder = self.generator.masked_lm, self.generator.backbone
        outputs = encoder(
            inputs, training=training, dropout_key=key_of(Salt.GENERATOR), decoder=head, query_positions=positions
        )
        logits = head(outputs["decoded_output"], encoder.token_embedding_table())
        sampled = sample_tokens(logits, fold_in(key, Salt.REPLACED_TOKENS))
        inputs["token_ids"], replaced = replace_tokens(inputs["token_ids"], positions, labels, masked, sampled)
        outputs = self.backbone(inputs, training=training, dropout_key=key_of(Salt.DISCRIMINATOR))
        rtd = self.discriminator.rtd(outputs["sequence_output"], key=key_of(Salt.DISCRIMINATOR_HEAD))[..., 0]
        return {"masked_lm": logits, "rtd": rtd, "replaced": replaced, "token_ids": inputs["token_ids"]}

    def _scores(self, x: dict[str, Tensor], y_pred: dict[str, Tensor]) -> Scores:
        labels, logits, rtd, replaced = x["mask_labels"], y_pred["masked_lm"], y_pred["rtd"], y_pred["replaced"]
        masked, real = (ops.cast(x[name], "float32") for name in ("mask_weights", "padding_mask"))
        self.auc.update_state(replaced, ops.stop_gradient(rtd), real)
        masked_lm = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return {
            "masked_lm_loss": (1.0, masked_lm, masked),
            "masked_accuracy": (None, is_correct(logits, labels), masked),
            "rtd_loss": (self.weight, ops.softplus(rtd) - rtd * ops.cast(replaced, "float32"), real),
        }

    def save_to_preset(self, directory: str | Path) -> None:
        """Saves the discriminator, which transformers loads as ElectraForPreTraining, and in the subdirectory
        `generator` the generator, which transformers loads as ElectraForMaskedLM."""
        discriminator, embeddings = self.discriminator, self.backbone.embeddings
        if isinstance(embeddings, GradientDisentangledEmbeddings):  # files have the sums of the tables
            values = {**weights_by_name(discriminator), "embeddings/token": embeddings.token}
            values["embeddings/position"] = embeddings.position
            discriminator = ReplacedTokenDetector(Encoder(self.backbone.config, False), discriminator.tokenizer)
            for name, weight in weights_by_name(discriminator).items():
                weight.assign(ops.convert_to_numpy(values[name]))
        discriminator.save_to_preset(directory)
        self.generator.save_to_preset(Path(directory) / "generator")


class SharedEmbeddings(Embeddings):
    """Another encoder's tables and normalisation, with a separate projection to another width (Clark et al. 2020,
    section 3.2)."""

    def __init__(self, source_embeddings: Embeddings, hidden_size: int):
        super().__init__(**_arguments(source_embeddings, hidden_size, "plain"))
        self.token, self.position, self.segment, self.norm = (
            source_embeddings.token,
            source_embeddings.position,
            source_embeddings.segment,
            source_embeddings.norm,
        )

    def build(self, input_shape: Any) -> None:
        if self.dense is not None:
            build_dense(self, self.dense, self.width, self.initializer_range)


class GradientDisentangledEmbeddings(MaskedEmbeddings):
    """Another encoder's token and position tables without their gradient plus learnt differences, and a separate
    projection where the widths differ (gradient-disentangled embedding sharing, He et al. 2023, section 3.3).

    A table is stop_gradient(owner's) + difference; the differences are initialised with 0. The discriminator so uses
    what the generator learns, while its loss, which separates words, does not work against the generator's, which
    brings similar words together.
    """

    def __init__(self, source_embeddings: MaskedEmbeddings, hidden_size: int):
        super().__init__(**_arguments(source_embeddings, hidden_size, "disentangled"))
        # In a function, since Keras would otherwise track the owner's tables as this layer's.
        self._owner = lambda: source_embeddings

    def _make_tables(self) -> None:
        self.segment = self.add_embedding_table("segment", self.num_segments, self.width)
        self.token_difference = self._difference("token")
        self.position_difference = self._difference("position")

    def _difference(self, name: str) -> keras.Variable | None:
        table = getattr(self._owner(), name)
        if table is None:
            return None
        return self.add_weight(name=f"{name}_difference", shape=table.shape, initializer="zeros", autocast=False)

    @property
    def token(self) -> Tensor:
        """(vocabulary, width)."""
        return ops.stop_gradient(ops.convert_to_tensor(self._owner().token)) + self.token_difference

    @property
    def position(self) -> Tensor | None:
        """(positions, width), or None where the owner has none."""
        if self.position_difference is None:
            return None
        return ops.stop_gradient(ops.convert_to_tensor(self._owner().position)) + self.position_difference


def _arguments(owner: Embeddings, hidden_size: int, sharing: str) -> dict[str, Any]:
    if isinstance(owner, MaskedEmbeddings) != (sharing == "disentangled"):
        raise ValueError(
            'DeBERTa\'s embeddings need sharing = "disentangled", and those of other families "plain". Received: '
            f"{sharing!r} for the embeddings of another."
        )
    projection = hidden_size if hidden_size != owner.width else None
    return {**owner.constructor_arguments(), "projection": projection, "dtype": owner.dtype_policy}


def sample_tokens(logits: Tensor, key: Tensor) -> Tensor:
    """Samples tokens: logits (batch, predictions, vocabulary) -> int32 (batch, predictions).

    Inverse transform sampling with a random number from the counter-based hash. The block of tokens in which the
    cumulative sum reaches it is found first, then the token in the block: a cumulative sum over the whole vocabulary
    would be slow.
    """
    logits = ops.stop_gradient(ops.cast(logits, "float32"))
    batch, predictions, vocabulary = ops.shape(logits)
    blocks = -(-vocabulary // BLOCK)
    weights = ops.exp(logits - ops.amax(logits, axis=-1, keepdims=True))
    # Not `ops.pad`, which counts its calls, so that PyTorch would recompile each step.
    rest = ops.tile(ops.zeros_like(weights[..., :1]), (1, 1, blocks * BLOCK - vocabulary))
    weights = ops.concatenate([weights, rest], axis=-1)
    weights = ops.reshape(weights, (batch, predictions, blocks, BLOCK))
    bits = ops.right_shift(random_bits(key, (batch, predictions, 1)), 8) & 0xFFFFFF
    uniform = (ops.cast(bits, "float32") + 0.5) * 2.0**-24
    sums = ops.sum(weights, axis=-1)
    block, left = _find(sums, uniform * ops.sum(sums, axis=-1, keepdims=True))
    inside = ops.take_along_axis(weights, block[..., None, None], axis=2)[:, :, 0]
    token, _ = _find(inside, left)
    return ops.minimum(block * BLOCK + token, vocabulary - 1)


def _find(weights, threshold):
    """The index at which the cumulative sum exceeds a threshold, and what remains of the threshold there: (…, n),
    (…, 1) -> int32 (…), (…, 1)."""
    sums = ops.cumsum(weights, axis=-1)
    # Rounding may put the threshold at the very end of the sum.
    index = ops.minimum(ops.sum(ops.cast(sums <= threshold, "int32"), axis=-1), weights.shape[-1] - 1)
    before = ops.take_along_axis(sums - weights, index[..., None], axis=-1)
    return index, threshold - before


def replace_tokens(
    token_ids: Tensor, mask_positions: Tensor, mask_labels: Tensor, mask_weights: Tensor, sampled_ids: Tensor
) -> tuple[Tensor, Tensor]:
    """Replaces the masked tokens with sampled ones.

    Args:
        token_ids: int32 (batch, length).
        mask_positions, mask_labels, sampled_ids: int32 (batch, predictions).
        mask_weights: (batch, predictions), above 0 at positions in use. Unused ones point to the first token, which is
            never masked.

    Returns:
        The tokens, and 1 where they differ from the original: int32 (batch, length) each.
    """
    used = mask_weights > 0
    first = ops.broadcast_to(token_ids[:, :1], ops.shape(sampled_ids))
    examples = ops.broadcast_to(ops.arange(ops.shape(sampled_ids)[0], dtype="int32")[:, None], ops.shape(sampled_ids))
    where = ops.reshape(ops.stack([examples, ops.cast(mask_positions, "int32")], axis=-1), (-1, 2))
    tokens = ops.reshape(ops.where(used, sampled_ids, first), (-1,))
    differs = ops.reshape(ops.cast(ops.logical_and(used, sampled_ids != mask_labels), "int32"), (-1,))
    token_ids = ops.cast(token_ids, "int32")
    return ops.scatter_update(token_ids, where, tokens), ops.scatter_update(ops.zeros_like(token_ids), where, differs)


@keras.saving.register_keras_serializable("bertzoo")
class LogitAuc(keras.metrics.Metric):
    """The area under the ROC curve, computed from logits.

    Logits are counted in 2,048 bins from -10 to 10, so that a batch costs one pass and nothing is stored. (Keras's AUC
    bins probabilities, which are nearly all close to 0 here.)
    """

    def __init__(self, name: str = "auc", **kwargs):
        super().__init__(name=name, **kwargs)
        self.counts = self.add_variable((2, BINS), initializer="zeros", dtype="float32", name="counts")

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None) -> None:
        """Adds a batch.

        Args:
            y_true: int, 1 for positives and 0 for negatives; any shape.
            y_pred: Logits, of the same shape.
            sample_weight: Weights, of the same shape.
        """
        bins = (ops.clip(ops.cast(y_pred, "float32"), -LIMIT, LIMIT) + LIMIT) * ((BINS - 1) / (2 * LIMIT))
        bins = ops.cast(bins, "int32") + ops.cast(y_true, "int32") * BINS
        weight = ops.ones_like(y_pred) if sample_weight is None else sample_weight
        counts = ops.segment_sum(
            ops.reshape(ops.cast(weight, "float32"), (-1,)), ops.reshape(bins, (-1,)), num_segments=2 * BINS
        )
        self.counts.assign_add(ops.reshape(counts, (2, BINS)))

    def result(self) -> Tensor:
        fractions = self.counts / ops.maximum(ops.sum(self.counts, axis=1, keepdims=True), 1.0)
        below = ops.cumsum(fractions[0]) - 0.5 * fractions[0]
        return ops.sum(fractions[1] * below)
