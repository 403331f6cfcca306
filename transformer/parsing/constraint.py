"""Constrain a beam search to well-formed trees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer.data.vocabulary import SPACE_SYMBOL, Vocabulary
from transformer.decoding.beams import Beams
from transformer.parsing.trees import MAX_OPEN, Leaves, leaf_forms


class Spelling:
    """How a vocabulary writes brackets and leaves.

    Attributes:
        opening: ids of the opening brackets, one for each label
        closing: ids of their closing brackets, in the same order
    """

    def __init__(self, vocabulary: Vocabulary, leaves: Leaves) -> None:
        self._vocabulary = vocabulary
        self._leaves: Leaves = leaves
        self._known: dict[str, list[list[int]]] = {}
        ids = {piece: number for number, piece in enumerate(vocabulary.pieces())}
        opening, closing = f"{SPACE_SYMBOL}(", f"{SPACE_SYMBOL})"
        labels = [x.removeprefix(opening) for x in ids if x.startswith(opening) and x != opening]
        labels = [label for label in labels if closing + label in ids]
        self.opening = [ids[opening + label] for label in labels]
        self.closing = [ids[closing + label] for label in labels]
        self.vocab_size = len(ids)
        words = (x for x in ids if x.startswith(SPACE_SYMBOL) and x[1:2] not in ("", "(", ")"))
        self._any_word = [ids[next(words)]]

    def leaf(self, word: str) -> list[list[int]]:
        """The ids of each form of the leaf for ``word``; none is the beginning of another."""
        if word not in self._known:
            forms: list[list[int]] = []
            for form in leaf_forms(word.replace(SPACE_SYMBOL, ""), self._leaves):
                # An unknown character would be decoded as a word of its own.
                ids = [x for x in self._vocabulary.encode_word(form) if x != UNK_ID]
                ids = ids if self._vocabulary.decode(ids).strip() else self._any_word
                if not any(x[: len(ids)] == ids[: len(x)] for x in forms):
                    forms.append(ids)
            self._known[word] = forms
        return self._known[word]


class _Graph:
    """A sentence as a graph: a node is how much of it has been written, an edge a word-piece.

    Attributes:
        edges: for each node, its next node by word-piece
        left: for each node, the least number of word-pieces to the end of the last word
        boundaries: the nodes between words, from the end to the start of the sentence
    """

    def __init__(self, spelling: Spelling, words: Sequence[str]) -> None:
        self.edges: list[dict[int, int]] = [{}]
        self.left, self.boundaries = [0], [0]
        for word in reversed(words):
            self._prepend(spelling.leaf(word))

    def _prepend(self, forms: Sequence[Sequence[int]]) -> None:
        after, start = self.boundaries[-1], len(self.edges)
        self.edges.append({})
        for ids in forms:
            node = start
            for piece in ids[:-1]:
                if piece not in self.edges[node]:
                    self.edges[node][piece] = len(self.edges)
                    self.edges.append({})
                node = self.edges[node][piece]
            self.edges[node][ids[-1]] = after
        self.left += [0] * (len(self.edges) - start)
        for node in range(len(self.edges) - 1, start - 1, -1):
            self.left[node] = 1 + min(self.left[x] for x in self.edges[node].values())
        self.boundaries.append(start)


class TreeConstraint:
    """Limits a beam search to trees over the words of some sentences, as docs/parsing.md describes.

    The first word-piece of a leaf gets the probability of all leaves together, and the rest of the
    leaf 1; otherwise a model that misspells a word would add brackets instead.

    A hypothesis is a node of its sentence's graph and a stack of labels. All of them advance at
    once, without waiting for a GPU.
    """

    def __init__(self, spelling: Spelling, sentences: Sequence[str], device: torch.device) -> None:
        graphs = [_Graph(spelling, sentence.split()) for sentence in sentences]
        nodes = max(len(graph.edges) for graph in graphs)
        degree = max(len(edges) for graph in graphs for edges in graph.edges)
        pieces = torch.full((len(graphs), nodes, degree), -1)
        targets = torch.zeros_like(pieces)
        left = torch.zeros(len(graphs), nodes, dtype=torch.long)
        boundary = torch.zeros_like(left, dtype=torch.bool)
        for row, graph in enumerate(graphs):
            left[row, : len(graph.left)] = torch.tensor(graph.left)
            boundary[row, graph.boundaries] = True
            for node, edges in enumerate(graph.edges):
                pieces[row, node, : len(edges)] = torch.tensor([*edges], dtype=torch.long)
                targets[row, node, : len(edges)] = torch.tensor([*edges.values()], dtype=torch.long)
        starts = torch.tensor([graph.boundaries[-1] for graph in graphs])
        tables = pieces, targets, left, boundary, starts, torch.arange(len(graphs))
        self._tables = [table.to(device) for table in tables]
        self._closing = torch.tensor(spelling.closing, device=device)
        self._opening = torch.tensor(spelling.opening, device=device)
        # By word-piece, the label that it opens, and whether it closes one.
        self._label = torch.full((spelling.vocab_size,), -1, device=device)
        self._label[self._opening] = torch.arange(len(spelling.opening), device=device)
        self._closes = torch.zeros_like(self._label, dtype=torch.bool)
        self._closes[self._closing] = True
        self._in_leaf = (self._label < 0) & ~self._closes
        self._in_leaf[[PAD_ID, BOS_ID, EOS_ID]] = False
        self._hypotheses: list[Tensor] = []

    def __call__(self, beams: Beams, scores: Tensor) -> Tensor:
        """``scores`` ``(batch, beam, vocab_size)``, with -inf for what may not come next."""
        if self._hypotheses:
            self._follow(beams)
        else:
            node = self._tables[4].unsqueeze(1).repeat(1, beams.scores.size(1))
            depth = torch.zeros_like(node)
            stack = depth.unsqueeze(2).repeat(1, 1, MAX_OPEN)
            self._hypotheses = [node, depth, depth.bool(), stack]
        return self._score(beams, scores)

    def _follow(self, beams: Beams) -> None:
        """Move to the hypotheses of ``beams`` by their last word-pieces."""
        if len(beams.sentences) < len(self._tables[-1]):
            keep = torch.searchsorted(self._tables[-1], beams.sentences)
            self._tables = [table[keep] for table in self._tables]
            self._hypotheses = [state[keep] for state in self._hypotheses]
        node, depth, _, stack = (_at(x, beams.parents) for x in self._hypotheses)
        token = beams.last_tokens
        pieces, targets = (_at(table, node) for table in self._tables[:2])
        edge = pieces == token.unsqueeze(2)
        node = torch.where(edge.any(2), (targets * edge).sum(2), node)
        label = self._label[token]
        opens, top = label >= 0, depth.clamp(max=MAX_OPEN - 1).unsqueeze(2)
        written = torch.where(opens.unsqueeze(2), label.unsqueeze(2), stack.gather(2, top))
        stack = stack.scatter(2, top, written)
        depth = (depth + opens.long() - self._closes[token].long()).clamp(0, MAX_OPEN)
        self._hypotheses = [node, depth, opens, stack]

    def _score(self, beams: Beams, scores: Tensor) -> Tensor:
        node, depth, was_opened, stack = self._hypotheses
        pieces, targets, left, boundary = (_at(table, node) for table in self._tables[:4])
        # What there is room for besides the closing brackets and the end.
        room = beams.limits.unsqueeze(1) - beams.history.size(2) - depth - 1
        result = torch.full_like(scores, -torch.inf)
        left_after = self._tables[2].gather(1, targets.flatten(1)).view_as(targets)
        fits = (left_after < room.unsqueeze(2)) | (left_after < left.unsqueeze(2))
        fits &= pieces >= 0
        pieces = pieces.clamp(min=PAD_ID)
        # The pieces that may follow in a leaf share 1; at a boundary, the probability of any leaf.
        spelt = scores.gather(2, pieces).masked_fill(~fits, -torch.inf)
        any_leaf = scores.masked_fill(~self._in_leaf, -torch.inf).logsumexp(2)
        rescale = any_leaf.masked_fill(~boundary, 0.0) - spelt.logsumexp(2)
        result.scatter_(2, pieces, (spelt + rescale.unsqueeze(2)).masked_fill(~fits, -torch.inf))
        may_open = boundary & (left > 0) & (depth < MAX_OPEN) & (left + 2 <= room)
        result[..., self._opening] = _where(may_open, scores[..., self._opening])
        innermost = stack.gather(2, (depth - 1).clamp(min=0).unsqueeze(2)).squeeze(2)
        closing = self._closing[innermost].unsqueeze(2)
        may_close = boundary & (depth > 0) & ~was_opened
        result.scatter_(2, closing, _where(may_close, scores.gather(2, closing)))
        may_end = boundary & (left == 0) & (depth == 0)
        result[..., EOS_ID] = scores[..., EOS_ID].masked_fill(~may_end, -torch.inf)
        return result


def _where(allowed: Tensor, scores: Tensor) -> Tensor:
    return scores.masked_fill(~allowed.unsqueeze(2), -torch.inf)


def _at(table: Tensor, node: Tensor) -> Tensor:
    """The entries of ``(batch, nodes, …)`` at ``(batch, beam)``."""
    index = node if table.dim() == 2 else node.unsqueeze(2).expand(-1, -1, table.size(2))
    return table.gather(1, index)
