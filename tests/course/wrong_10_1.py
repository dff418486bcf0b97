"""Wrong answers to exercise 10.1, each of which the checker must refuse."""


def _parts(width, inner):
    return 4 * (width * width + width) + 2 * width, width * inner + inner + inner * width + width + 2 * width


def without_biases(width, inner, layers, share):
    attention, feed_forward = 4 * width * width + 2 * width, 2 * width * inner + 2 * width
    return (1 if share in ("attention", "all") else layers) * attention + (
        1 if share in ("feed-forward", "all") else layers
    ) * feed_forward


def shares_the_other_part(width, inner, layers, share):
    attention, feed_forward = _parts(width, inner)
    return (1 if share in ("feed-forward", "all") else layers) * attention + (
        1 if share in ("attention", "all") else layers
    ) * feed_forward


def ignores_what_is_shared(width, inner, layers, share):
    return layers * sum(_parts(width, inner))


def norms_are_never_shared(width, inner, layers, share):
    attention, feed_forward = (part - 2 * width for part in _parts(width, inner))
    copies = [1 if share in (part, "all") else layers for part in ("attention", "feed-forward")]
    return copies[0] * attention + copies[1] * feed_forward + layers * 4 * width


def divides(width, inner, layers, share):
    return sum(_parts(width, inner)) * (layers if share == "none" else 1) / 1


def one_matrix_too_few(width, inner, layers, share):
    attention, feed_forward = _parts(width, inner)
    attention -= width * width + width
    copies = [1 if share in (part, "all") else layers for part in ("attention", "feed-forward")]
    return copies[0] * attention + copies[1] * feed_forward
