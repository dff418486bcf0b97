"""BidirectionalLSTM against PyTorch's, over packed rows of unlike length; by formula and by faster forms."""

import keras
import numpy as np
import pytest

from bertzoo.dispatch import use_formulas_only
from bertzoo.layers.lstm import BidirectionalLSTM


@pytest.mark.parametrize("formulas", [True, False])
def test_outputs_are_those_of_pytorch(formulas):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, lengths = rng.standard_normal((4, 9, 6)).astype("float32"), np.array([9, 4, 1, 6])
    reference = torch.nn.LSTM(6, 5, batch_first=True, bidirectional=True)
    layer = BidirectionalLSTM(5)
    layer.build((None, None, 6))
    for direction, suffix in (("forward", ""), ("backward", "_reverse")):
        for kind, name in (
            ("kernel", "weight_ih"),
            ("recurrent_kernel", "weight_hh"),
            ("bias", "bias_ih"),
            ("recurrent_bias", "bias_hh"),
        ):
            weight = getattr(reference, f"{name}_l0{suffix}").detach().cpu().numpy()
            getattr(layer, f"{direction}_{kind}").assign(weight.T)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), lengths, batch_first=True, enforce_sorted=False)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(reference(packed)[0], batch_first=True)
    if formulas:
        with use_formulas_only():
            outputs = layer(x, lengths)
    else:
        outputs = layer(x, lengths)
    outputs = keras.ops.convert_to_numpy(outputs)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(outputs[row, :length], expected.detach().numpy()[row, :length], atol=1e-6)
