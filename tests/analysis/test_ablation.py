"""Ablated heads against transformers' weights times NumPy: what a head adds to the output, left out."""

import keras
import numpy as np
import pytest
import torch

import bertzoo as bz
from bertzoo.analysis.heads import ablate_each_head, ablate_heads

IDS = np.array([[2, 7, 8, 9, 3], [2, 11, 12, 3, 0]], "int32")
INPUTS = {"token_ids": IDS, "padding_mask": (IDS > 0).astype("int32")}


@pytest.fixture
def pair(checkpoint):
    directory, reference = checkpoint
    return bz.Encoder.from_preset(directory, verbose=False), reference


def without_heads(reference, lost):
    """The reference's outputs where, in front of each output kernel, a head's part of the context is 0."""
    hooks = []
    for block, head in lost:

        def zero(module, args, head=head):
            context = args[0].clone()
            context[..., head * 8 : (head + 1) * 8] = 0
            return (context, *args[1:])

        hooks.append(reference.encoder.layer[block].attention.output.dense.register_forward_pre_hook(zero))
    with torch.no_grad():
        ids, mask = (torch.tensor(INPUTS[name]).long() for name in ("token_ids", "padding_mask"))
        out = reference(ids, attention_mask=mask).last_hidden_state.numpy()
    for hook in hooks:
        hook.remove()
    return out


@pytest.mark.parametrize("lost", [[(0, 1)], [(0, 0), (0, 3), (1, 2)], [(1, head) for head in range(4)]])
def test_lost_heads_add_nothing_and_come_back(pair, lost, numpy, close):
    encoder, reference = pair
    weights = numpy(encoder.get_weights())
    whole = numpy(encoder(INPUTS)["sequence_output"])
    with ablate_heads(encoder, lost):
        out = numpy(encoder(INPUTS)["sequence_output"])
    real = INPUTS["padding_mask"] == 1
    close(out[real], without_heads(reference, lost)[real])
    assert np.abs(out - whole).max() > 1e-2
    for before, after in zip(weights, numpy(encoder.get_weights())):
        np.testing.assert_array_equal(before, after)


def test_what_a_lost_head_computes_changes_no_bit(pair, numpy):
    encoder, _ = pair
    bias = encoder.blocks[0].attention.qkv.bias
    changed = numpy(bias.value).copy()
    changed[64 + 8 : 64 + 16] += 5  # the values of head 1
    with ablate_heads(encoder, [(0, 1)]):
        before = numpy(encoder(INPUTS)["sequence_output"])
        bias.assign(changed)
        np.testing.assert_array_equal(numpy(encoder(INPUTS)["sequence_output"]), before)


def test_weights_come_back_after_an_error(pair, numpy):
    encoder, _ = pair
    before = numpy(encoder(INPUTS)["sequence_output"])
    with pytest.raises(RuntimeError), ablate_heads(encoder, [(1, 1)]):
        raise RuntimeError
    np.testing.assert_array_equal(numpy(encoder(INPUTS)["sequence_output"]), before)


def test_scores_without_each_head(write_checkpoint, close):
    directory, reference = write_checkpoint("BertForSequenceClassification")
    task = bz.TextClassifier.from_preset(directory, verbose=False)
    actual = ablate_each_head(task, lambda: float(keras.ops.convert_to_numpy(task(INPUTS))[0, 0]))
    logits = reference.classifier

    def expected(lost):
        with torch.no_grad():
            out = torch.tensor(without_heads(reference.bert, lost))
            return float(logits(reference.bert.pooler(out))[0, 0])

    assert actual.before == pytest.approx(expected([]), abs=1e-5)
    close(actual.after, [[expected([(block, head)]) for head in range(4)] for block in range(2)])
    close(actual.score_change, actual.after - actual.before)


def test_heads_that_there_are_not(pair):
    for place in ((2, 0), (0, 4), (-1, 0)):
        with pytest.raises(ValueError, match="2 blocks with 4 heads"), ablate_heads(pair[0], [place]):
            pass
