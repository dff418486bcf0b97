"""What is set for a backend once it is imported."""

import keras
import pytest


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a setting of TensorFlow's")
def test_tensorflow_on_a_cpu_runs_graphs_as_traced_where_asked_to(python):
    import tensorflow as tf

    show = "print(tf.config.optimizer.get_experimental_options().get('disable_meta_optimizer', False))\n"
    code = "import keras, tensorflow as tf, bertzoo as bz; bz.Encoder; from bertzoo.backend import *\n"
    before, after = python(f"{code}{show}disable_tensorflow_grappler()\n{show}").split()[-2:]
    assert before == "False" and after == str(not tf.config.list_physical_devices("GPU"))
