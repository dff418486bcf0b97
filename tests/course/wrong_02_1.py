"""Wrong answers to exercise 02.1, each of which the checker must refuse."""


def _right(trie, word, start):
    node, end = trie, start
    for place in range(start, len(word)):
        node = node.get(word[place])
        if node is None:
            break
        if "" in node:
            end = place + 1
    return end


def shortest_piece(trie, word, start):
    node = trie
    for place in range(start, len(word)):
        node = node.get(word[place])
        if node is None:
            return start
        if "" in node:
            return place + 1
    return start


def end_of_the_walk(trie, word, start):
    node, place = trie, start
    while place < len(word) and word[place] in node:
        node = node[word[place]]
        place += 1
    return place


def length_in_place_of_end(trie, word, start):
    return _right(trie, word, start) - start


def from_the_beginning_of_the_word(trie, word, start):
    node, end = trie, 0
    for place in range(len(word)):
        node = node.get(word[place])
        if node is None:
            break
        if "" in node:
            end = place + 1
    return end


def piece_in_place_of_end(trie, word, start):
    return word[start : _right(trie, word, start)]


def tries_every_end(trie, word, start):
    longest = start
    for end in range(start + 1, len(word) + 1):
        node = trie
        for letter in word[start:end]:
            node = node.get(letter, {})
        if "" in node:
            longest = end
    return longest
