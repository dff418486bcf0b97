"""Attributions against PyTorch's gradients and logits of transformers' modules, in NumPy from the formulas."""

import numpy as np
import pytest
import torch

import bertzoo as bz
from bertzoo.analysis.attribution import integrated_gradients, occlusion

TEXT = "unhappily the film was bad."
PAD, MASK = 0, 4


@pytest.fixture(scope="module")
def pair(write_checkpoint):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    return bz.TextClassifier.from_preset(directory, verbose=False), reference


def ids_of(task, text=TEXT):
    return task.preprocessor([text])["token_ids"][0]


def logits(reference, ids):
    with torch.no_grad():
        return reference(torch.tensor(ids)[None].long()).logits[0].numpy()


def by_formula(reference, ids, blank, output, steps):
    """Sum over the path of gradients of transformers' encoder, pooler and classifier, times the way."""
    ends = [reference.bert.embeddings(torch.tensor(row)[None].long()).detach() for row in (ids, blank)]
    way, total = ends[0] - ends[1], 0
    for place, weight in zip(*np.polynomial.legendre.leggauss(steps)):
        point = (ends[1] + (place + 1) / 2 * way).requires_grad_()
        hidden = reference.bert.encoder(point)[0]
        logit = reference.classifier(reference.bert.pooler(hidden))[0, output]
        total = total + weight / 2 * torch.autograd.grad(logit, point)[0].double()
    return (way.double() * total).sum(dim=-1)[0].numpy()


def test_integrated_gradients_are_the_formulas_and_sum_to_the_difference(pair, close):
    task, reference = pair
    ids = ids_of(task)
    blank = np.where(np.isin(ids, [2, 3]), ids, PAD)
    for output in (0, 1):
        found = integrated_gradients(task, TEXT, output, steps=40, batch_size=16)
        close(found.scores, by_formula(reference, ids, blank, output, 40), factor=2e-5)
        close(found.logit, logits(reference, ids)[output])
        close(found.base, logits(reference, blank)[output])
        assert found.scores.sum() == pytest.approx(found.logit - found.base, rel=0.01)
    assert len(found.names) == len(ids)


def test_words_get_the_sum_of_their_pieces(pair, close):
    found = integrated_gradients(pair[0], "badly unhappy", 0, steps=4)
    words = found.by_word()
    assert words.names == ("[CLS]", "badly", "unhappy", "[SEP]") and found.names[2:4] == ("un", "##happy")
    close(words.scores, [found.scores[0], found.scores[1], found.scores[2:4].sum(), found.scores[4]])


def test_a_model_is_left_as_it_was(pair, numpy):
    task, _ = pair
    inputs = task.preprocessor([TEXT])
    before = numpy(task(inputs))
    integrated_gradients(task, TEXT, 0, steps=2)
    np.testing.assert_array_equal(numpy(task(inputs)), before)
    assert "call" not in vars(task.backbone.embeddings)


def test_occlusion_is_the_fall_of_the_logit(pair, close):
    task, reference = pair
    text = "badly unhappy film."
    ids = ids_of(task, text)
    found = occlusion(task, text, 1, batch_size=3)
    assert found.names == ("[CLS]", "badly", "un", "##happy", "film", ".", "[SEP]")
    expected = np.zeros(7)
    for places in ([1], [2, 3], [4], [5]):
        hidden = ids.copy()
        hidden[places] = MASK
        expected[places] = (logits(reference, ids)[1] - logits(reference, hidden)[1]) / len(places)
    close(found.scores, expected)
    close(found.logit, logits(reference, ids)[1])
    close(found.base, logits(reference, np.where(np.isin(ids, [2, 3]), ids, MASK))[1])


def test_pairs_of_texts(pair):
    found = integrated_gradients(pair[0], ("the film", "was bad"), 0, steps=24)
    assert found.names == ("[CLS]", "the", "film", "[SEP]", "was", "bad", "[SEP]")
    assert found.scores.sum() == pytest.approx(found.logit - found.base, rel=0.01)


def test_what_cannot_be_attributed(pair, write_checkpoint):
    for way in (integrated_gradients, occlusion):
        with pytest.raises(ValueError, match="output, 2, is one"):
            way(pair[0], TEXT, 2)
    with pytest.raises(ValueError, match="steps must be"):
        integrated_gradients(pair[0], TEXT, 0, steps=0)
    bare = bz.TextClassifier(pair[0].backbone)
    with pytest.raises(ValueError, match="no preprocessor"):
        occlusion(bare, TEXT, 0)
