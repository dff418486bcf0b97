"""Wrong answers to exercise 07.1, each of which the checker must refuse."""


def each_word_alone(emissions, transitions):
    return emissions.argmax(axis=1).tolist()


def greedy(emissions, transitions):
    path = [int((transitions[-1, :-1] + emissions[0]).argmax())]
    for emission in emissions[1:]:
        path.append(int((transitions[path[-1], :-1] + emission).argmax()))
    return path


def _viterbi(emissions, inner, begin, end):
    best, came_from = begin + emissions[0], []
    for emission in emissions[1:]:
        ways = best[:, None] + inner
        came_from.append(ways.argmax(axis=0))
        best = ways.max(axis=0) + emission
    path = [int((best + end).argmax())]
    for earlier in reversed(came_from):
        path.append(int(earlier[path[-1]]))
    return path[::-1]


def without_borders(emissions, transitions):
    return _viterbi(emissions, transitions[:-1, :-1], 0.0, 0.0)


def from_and_to_swapped(emissions, transitions):
    return _viterbi(emissions, transitions[:-1, :-1].T, transitions[-1, :-1], transitions[:-1, -1])


def borders_swapped(emissions, transitions):
    return _viterbi(emissions, transitions[:-1, :-1], transitions[:-1, -1], transitions[-1, :-1])


def backwards(emissions, transitions):
    return _viterbi(emissions, transitions[:-1, :-1], transitions[-1, :-1], transitions[:-1, -1])[::-1]


def border_as_a_label(emissions, transitions):
    return [len(transitions) - 1] * len(emissions)
