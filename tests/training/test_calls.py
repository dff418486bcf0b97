"""Calls that come at once, and calls that end before their time."""

import signal
import threading

import keras
import numpy as np
import pytest

import bertzoo as bz
from bertzoo.training import calls

TEXTS = ["a good film", "the plot was bad and dull", "we saw it with friends", "never again", "not very good"] * 4
LABELS = [0, 1, 1, 0, 1] * 4
SHAPE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


class Stopped(Exception):
    """What a callback or the data raise."""


@pytest.fixture(scope="module")
def made(words):
    """(task's class) -> a tiny task."""

    def make(task, **options):
        encoder = bz.Encoder(bz.EncoderConfig(vocab_size=len(words), **SHAPE), name=f"encoder_of_{task.__name__}")
        tokenizer = bz.Tokenizer.from_vocabulary(words, max_length=16)
        return task(encoder, tokenizer, **options)

    return make


@pytest.fixture(scope="module")
def classifier(made):
    task = made(bz.TextClassifier, labels=["bad", "good"])
    task.compile(keras.optimizers.SGD(0.1))
    task.fit(TEXTS, LABELS, batch_size=4, verbose=0)
    return task


# A call of TensorFlow's takes a tenth of a second, however little there is to do.
TIMES = 3 if keras.backend.backend() == "tensorflow" else 20


def at_once(function, times: int = TIMES, threads: int = 8) -> list:
    """What each call of a function gave or raised, from several threads."""
    results = []

    def work():
        for _ in range(times):
            try:
                results.append(function())
            except Exception as error:
                results.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


@pytest.mark.slow
def test_several_threads_ask_one_model(made, classifier):
    encoder, few = made(bz.SentenceEncoder), TEXTS[:3]
    tagger = made(bz.TokenClassifier, labels=["O", "B-X", "I-X"], crf=True)
    for function in (
        lambda: classifier.predict(few, verbose=0),
        lambda: np.array([row["score"] for row in classifier.classify(few)]),
        lambda: encoder.encode(few),
    ):
        expected = function()
        results = at_once(function)
        assert not [error for error in results if isinstance(error, Exception)] and len(results) == 8 * TIMES
        assert all(np.allclose(one, expected, atol=1e-6) for one in results)
    assert all(one == tagger.tag(few) for one in at_once(lambda: tagger.tag(few), times=2))


def test_evaluations_at_once_do_not_mix(classifier):
    """Keras keeps the sums of all metrics in the model."""
    slices = slice(0, 4), slice(4, 20)
    expected = [classifier.evaluate(TEXTS[examples], LABELS[examples], verbose=0) for examples in slices]
    turn = iter([0, 1] * 8)
    results = at_once(
        lambda: (i := next(turn), classifier.evaluate(TEXTS[slices[i]], LABELS[slices[i]], verbose=0)), times=2
    )
    assert len(results) == 16 and all(np.allclose(values, expected[i], atol=1e-5) for i, values in results)


def failing(after: int):
    """Batches, of which all beyond the first few raise."""
    for i in range(after):
        yield TEXTS[4 * i : 4 * i + 4], LABELS[4 * i : 4 * i + 4]
    raise Stopped


def stop(when: str, error: type[BaseException], step: int) -> keras.callbacks.Callback:
    def act(batch, logs=None):
        if batch == step:
            raise error

    return keras.callbacks.LambdaCallback(**{when: act})


ENDS = [
    *[(f"on_{{}}_batch_{edge}", error, step) for edge, step in [("begin", 0), ("begin", 2), ("end", 0), ("end", 2)]
      for error in (KeyboardInterrupt, Stopped)],
    ("generator", Stopped, 0),
    ("generator", Stopped, 2),
]  # fmt: skip


@pytest.mark.parametrize("call", ["predict", "evaluate", "fit"])
def test_weights_outlive_what_ends_a_call(classifier, call):
    hook = {"predict": "predict", "evaluate": "test", "fit": "train"}[call]
    expected = classifier.predict(TEXTS, verbose=0)
    for when, error, step in ENDS:
        before, seen = classifier.get_weights(), []
        options = {"verbose": 0, "callbacks": []}
        if call == "fit":  # a callback may ask in the middle of it

            def note(batch, logs, seen=seen):
                classifier.predict(TEXTS[:4], verbose=0)
                seen.append(classifier.get_weights())

            options["callbacks"].append(keras.callbacks.LambdaCallback(on_train_batch_end=note))
        if when == "generator":
            data = (failing(step),)
            options["steps_per_epoch" if call == "fit" else "steps"] = 5
        else:
            data = (TEXTS,) if call == "predict" else (TEXTS, LABELS)
            options |= {"batch_size": 4, "callbacks": [*options["callbacks"], stop(when.format(hook), error, step)]}
        with pytest.raises(Exception if when == "generator" else error):  # TensorFlow wraps what its data raise
            getattr(classifier, call)(*data, **options)
        after = classifier.get_weights()
        last = seen[-1] if seen else before
        assert all(np.array_equal(one, other) for one, other in zip(after, last)), (when, error, step)
        assert call != "fit" or len(seen) == step + when.endswith("end")
        answers = classifier.predict(TEXTS, verbose=0)
        assert call == "fit" or np.array_equal(answers, expected)
    classifier.fit(TEXTS, LABELS, batch_size=4, verbose=0)
    assert not any(np.array_equal(one, other) for one, other in zip(classifier.get_weights()[-2:], after[-2:]))


class Interrupted(keras.optimizers.SGD):
    """Ctrl-C in the middle of a step, which XLA compiles or PyTorch computes."""

    def apply(self, grads, trainable_variables=None):
        trainable_variables = trainable_variables or self._trainable_variables  # as JAX leaves them out
        middle = len(grads) // 2
        super().apply(grads[:middle], trainable_variables[:middle])
        signal.raise_signal(signal.SIGINT)
        super().apply(grads[middle:], trainable_variables[middle:])


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="TensorFlow's step is one call that no signal ends")
def test_an_interrupted_step_of_training_is_a_whole_step_or_none(made):
    after = []
    for optimizer in (keras.optimizers.SGD(0.1), Interrupted(0.1)):
        task = made(bz.TextClassifier, labels=["bad", "good"])
        task.compile(optimizer, metrics=[])
        before = task.get_weights()
        try:
            task.fit(TEXTS[:4], LABELS[:4], batch_size=4, verbose=0)
        except KeyboardInterrupt:
            task.predict(TEXTS[:4], verbose=0)
        after.append(task.get_weights())
    changed = [not np.allclose(one, other, atol=1e-7) for one, other in zip(before, after[0])]
    assert sum(changed) > 4
    assert any(
        all(np.allclose(one, other, atol=1e-7) for one, other in zip(after[1], whole)) for whole in (before, after[0])
    )


def test_interrupts_wait_for_the_end_of_a_block():
    # A shell that starts the tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []
    with pytest.raises(KeyboardInterrupt), calls.delay_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append("once")
    with pytest.raises(KeyboardInterrupt), calls.delay_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("twice")
    assert done == ["once"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)
