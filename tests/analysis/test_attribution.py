"""Attributions against a BERT in NumPy, whose derivatives are those of complex steps."""

import numpy as np
import pytest

import bertzoo as bz
from bertzoo.analysis import gradient_times_attention, integrated_gradients, occlusion

TEXT = "unheard, a film."  # its first word is [UNK]
MASK, STEP = 4, 1e-20


@pytest.fixture(scope="module")
def pair(write_checkpoint, numpy_bert):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    return bz.TextClassifier.from_preset(directory, verbose=False), numpy_bert(reference)


def ids_of(task, text=TEXT):
    return task.tokenizer([text])["token_ids"][0]


def slope(function, x):
    """The gradient of a function of (rows, *x.shape) at x, row by row: f(x + ih) / h, imaginary, is exact."""
    way = np.eye(x.size).reshape(-1, *x.shape) * 1j * STEP
    return (function(x + way).imag / STEP).reshape(x.shape)


@pytest.mark.slow
def test_integrated_gradients_are_the_formulas_and_sum_to_the_difference(pair, close):
    task, numpy_model = pair
    ids = ids_of(task)
    blank = np.where(np.isin(ids, [2, 3]), ids, MASK)
    assert ids[1] == 1
    start, end = numpy_model.embed(blank), numpy_model.embed(ids)
    for output in (0, 1):
        actual = integrated_gradients(task, TEXT, output, steps=8, batch_size=8)
        total = 0
        for place, weight in zip(*np.polynomial.legendre.leggauss(8)):
            point = start + (place + 1) / 2 * (end - start)
            total = total + weight / 2 * slope(lambda x: numpy_model.logits(x)[:, output], point)  # noqa: B023
        close(actual.scores, ((end - start) * total).sum(axis=-1))
        close(actual.value, numpy_model.logits(end[None])[0, output])
        close(actual.base, numpy_model.logits(start[None])[0, output])
        whole = integrated_gradients(task, TEXT, output, batch_size=8)
        assert whole.scores.sum() == pytest.approx(whole.value - whole.base, rel=0.01)
    assert actual.names == ("[CLS]", "unheard", ",", "a", "film", ".", "[SEP]")
    assert actual.scores[1] != 0 and actual.scores[0] == actual.scores[-1] == 0


def test_words_get_the_sum_of_their_pieces(pair, close):
    actual = integrated_gradients(pair[0], "badly unhappy film.", 0, steps=8)
    words = actual.by_word()
    assert words.names == ("[CLS]", "badly", "unhappy", "film", ".", "[SEP]") and actual.names[2:4] == ("un", "##happy")
    close(words.scores, [0, actual.scores[1], actual.scores[2:4].sum(), *actual.scores[4:]])


def test_occlusion_is_the_fall_of_the_logit(pair, close):
    task, numpy_model = pair
    text = "badly unhappy film."
    ids = ids_of(task, text)

    def logit(hidden):
        return numpy_model.logits(numpy_model.embed(np.where(hidden, MASK, ids))[None])[0, 1]

    actual = occlusion(task, text, 1, batch_size=3)
    assert actual.names == ("[CLS]", "badly", "un", "##happy", "film", ".", "[SEP]")
    expected, whole = np.zeros(7), logit(np.zeros(7, bool))
    for places in ([1], [2, 3], [4], [5]):
        expected[places] = (whole - logit(np.isin(np.arange(7), places))) / len(places)
    close(actual.scores, expected)
    close([actual.value, actual.base], [whole, logit(np.isin(np.arange(7), range(1, 6)))])


def test_gradient_times_attention_is_the_formulas(pair, close):
    task, numpy_model = pair
    text = "badly unhappy film."
    actual = gradient_times_attention(task, text, 1)
    x = numpy_model.embed(ids_of(task, text))
    numpy_model.logits(x[None])
    weights = [layer[0] for layer in numpy_model.attentions]
    for layer, weight in enumerate(weights):
        gradient = slope(
            lambda added: numpy_model.logits(np.repeat(x[None], len(added), axis=0), {layer: added})[:, 1],  # noqa: B023
            np.zeros_like(weight),
        )
        close(actual.scores[layer], weight * gradient)
    words = actual.by_word()
    assert words.names == ("[CLS]", "badly", "unhappy", "film", ".", "[SEP]")
    close(words.scores[:, :, 1, 2], actual.scores[:, :, 1, 2:4].sum(axis=-1))
    close(words.by_head(), actual.by_head())


def test_pairs_of_texts_and_numbers_of_tokens(pair, write_checkpoint):
    actual = integrated_gradients(pair[0], ("the film", "was bad"), 0, steps=8)
    assert actual.names == ("[CLS]", "the", "film", "[SEP]", "was", "bad", "[SEP]")
    assert actual.scores.sum() == pytest.approx(actual.value - actual.base, rel=0.01)
    masked = bz.MaskedLM.from_preset(write_checkpoint("BertForMaskedLM")[0], verbose=False)
    actual = integrated_gradients(masked, "the [MASK] was bad.", (2, 7), steps=8)
    assert actual.names[2] == "[MASK]"
    assert actual.scores.sum() == pytest.approx(actual.value - actual.base, rel=0.01)


def test_a_model_is_left_as_it_was(pair, numpy):
    task, _ = pair
    inputs = task.tokenizer([TEXT])
    before = numpy(task(inputs))
    integrated_gradients(task, TEXT, 0, steps=8)
    gradient_times_attention(task, TEXT, 0)
    np.testing.assert_array_equal(numpy(task(inputs)), before)
    attention = task.backbone.blocks[0].attention
    assert "call" not in vars(task.backbone.embeddings) and not {"call", "_explicit"} & set(vars(attention))


def test_what_cannot_be_attributed(pair):
    task, _ = pair
    for way in (integrated_gradients, occlusion, gradient_times_attention):
        with pytest.raises(ValueError, match=r"of shape \(batch, 2\)"):
            way(task, TEXT, 2)
    with pytest.raises(ValueError, match="steps and batch_size must be"):
        integrated_gradients(task, TEXT, 0, steps=0)
    with pytest.raises(ValueError, match="no tokenizer"):
        occlusion(bz.TextClassifier(task.backbone), TEXT, 0)
