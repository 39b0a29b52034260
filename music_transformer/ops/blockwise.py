"""Relative attention by blocks of queries: O(L D) memory in all, never an L x L tensor.

A block of b queries sees w keys. Its relative logits, query times the w nearest embeddings,
farthest first, are written into a buffer of b rows and w + 1 columns (the last from a zero row of
the table). Read with a row stride of w, from column b - 1 on, that memory *is* the skewed block:

    row r, column c of the view  =  buffer[r, b - 1 - r + c]  =  distance (w - b + r) - c

so the skew costs no copy, and query times key is accumulated into the view. The backward pass
recomputes each block from the saved log-sum-exp. With a window it is the paper's local attention:
the own block of N positions and the one before. Of V tables each V-th row of the buffer has one.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = 128  # queries of a block; 64 to 256 measured equal
BUFFER_NUMBERS = 1 << 19  # aim for one buffer: 2 MiB of float32 stay in a core's cache
Places = tuple[int | None, int]  # ``block`` and ``first`` of `blockwise_attention`


def blockwise_attention(
    query: Tensor, key: Tensor, value: Tensor, tables: Tensor, *, first: int, block: int | None
) -> Tensor:
    """Causal relative attention; memory O(S D) beyond one block's logits, time O(L S D).

    With ``block`` = N: time O(L N D). Arguments and result as in `ops.relative.relative_attention`.
    """
    keys = key.shape[2]
    table = farthest_first(tables, keys if block is None else min(keys, 2 * block))
    out: Tensor = Blockwise.apply(query, key, value, table, (block, first))  # type: ignore[no-untyped-call]
    return out


def farthest_first(tables: Tensor, distances: int) -> Tensor:
    """Rows for distances ``distances - 1`` to 0, zero where unknown, then a zero row.

    (V, H or 1, M, D) -> (V, H or 1, distances + 1, D).
    """
    known = tables[:, :, :distances].flip(2)  # (V, H or 1, min(M, distances), D)
    return F.pad(known, (0, 0, distances - known.shape[2], 1))


def _blocks(queries: int, keys: int, window: int | None) -> Iterator[tuple[int, int, int, int]]:
    """Rows i0..i1 of the queries and keys j0..j1 that they may see (rows of one local block)."""
    offset = keys - queries
    i0 = 0
    while i0 < queries:
        i1 = min(i0 + ROWS, queries)
        j0 = 0
        if window is not None:
            own = (offset + i0) // window
            i1 = min(i1, (own + 1) * window - offset)
            j0 = max(0, (own - 1) * window)
        yield i0, i1, j0, offset + i1
        i0 = i1


def _groups(batch: int, heads: int, width: int) -> Iterator[tuple[int, int, slice]]:
    """Ranges of the B*H attention maps worked on together, and the heads they belong to.

    A range is either some heads of one sequence, or all heads of some sequences.
    """
    fit = max(1, BUFFER_NUMBERS // (ROWS * (width + 1)))
    if fit >= heads:
        step = fit // heads * heads
        for n0 in range(0, batch * heads, step):
            yield n0, min(n0 + step, batch * heads), slice(0, heads)
    else:
        for b in range(batch):
            for h in range(0, heads, fit):
                end = min(h + fit, heads)
                yield b * heads + h, b * heads + end, slice(h, end)


def _tables_of_block(table: Tensor, heads: slice, width: int, first: int) -> list[Tensor]:
    """V views (heads or 1, width + 1, D) of `farthest_first`'s tables, in the turns of a block.

    ``first`` is the table of its first row, counted without end.
    """
    rows = table[:, :, table.shape[2] - 1 - width :]  # (V, H or 1, width + 1, D)
    rows = rows if rows.shape[1] == 1 else rows[:, heads]
    turns = rows.shape[0]
    return [rows[(first + turn) % turns] for turn in range(turns)]


def _for_maps(rows: Tensor, maps: int) -> Tensor:
    """A table (heads or 1, width + 1, D) for each of the maps: (maps, width + 1, D)."""
    if rows.shape[0] == 1:
        return rows.expand(maps, -1, -1)
    return rows if rows.shape[0] == maps else rows.repeat(maps // rows.shape[0], 1, 1)


def _skewed_view(buffer: Tensor, rows: int, width: int) -> Tensor:
    """View (n, rows, width) of ``buffer`` (n, rows, width + 1), indexed by key not by distance."""
    return buffer.as_strided(
        (buffer.shape[0], rows, width),
        (rows * (width + 1), width, 1),
        buffer.storage_offset() + rows - 1,
    )


def _block_logits(
    query: Tensor, key: Tensor, tables: list[Tensor], buffer: Tensor, hide: Tensor
) -> Tensor:
    """Logits (n, b, w) of one block, living in ``buffer``; -inf where the key is in the future.

    The tables (n, w + 1, D) take turns: one row of queries each, of whose columns they meet D.
    """
    maps, rows, _ = query.shape
    width = key.shape[1]
    by_distance = buffer[: maps * rows * (width + 1)].view(maps, rows, width + 1)
    turns, d_head = len(tables), tables[0].shape[2]
    for turn, table in enumerate(tables[:rows]):
        rows_of_turn = query[:, turn::turns, :d_head]  # (n, b/V, D)
        torch.bmm(rows_of_turn, table.transpose(1, 2), out=by_distance[:, turn::turns])
    logits = _skewed_view(by_distance, rows, width)  # (n, b, w)
    logits.baddbmm_(query, key.transpose(1, 2))
    logits[:, :, width - rows :].masked_fill_(hide[:rows, :rows], -math.inf)
    return logits


class Blockwise(torch.autograd.Function):
    """The operator; ``table`` (V, H or 1, widest + 1, D) is that of `farthest_first`."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, table: Tensor, places: Places
    ) -> Tensor:
        """(B, H, L, D), of arguments as in `blockwise_attention`."""
        window, first = places
        batch, heads, queries, _ = query.shape
        keys, d_head = value.shape[2:]
        maps = batch * heads
        q = (query / math.sqrt(d_head)).reshape(maps, queries, -1)  # (BH, L, D+P)
        k = key.reshape(maps, keys, -1)  # (BH, S, D+P)
        v = value.reshape(maps, keys, d_head)  # (BH, S, D)
        out = q.new_empty(maps, queries, d_head)  # (BH, L, D)
        log_sum = q.new_empty(maps, queries, 1)
        rows, width = min(ROWS, queries), table.shape[2] - 1
        hide = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)
        groups = list(_groups(batch, heads, width))
        buffer = q.new_empty(max(n1 - n0 for n0, n1, _ in groups) * rows * (width + 1))
        for n0, n1, head_slice in groups:
            for i0, i1, j0, j1 in _blocks(queries, keys, window):
                tables = _tables_of_block(table, head_slice, j1 - j0, first + i0)
                rel = [_for_maps(rows_used, n1 - n0) for rows_used in tables]  # V of (n, w + 1, D)
                weights = _block_logits(q[n0:n1, i0:i1], k[n0:n1, j0:j1], rel, buffer, hide)
                largest = weights.amax(-1, keepdim=True)  # (n, b, 1)
                weights.sub_(largest).exp_()
                total = weights.sum(-1, keepdim=True)  # (n, b, 1)
                torch.div(torch.bmm(weights, v[n0:n1, j0:j1]), total, out=out[n0:n1, i0:i1])
                log_sum[n0:n1, i0:i1] = largest + total.log()
        ctx.save_for_backward(q, k, v, table, out, log_sum)
        ctx.shape, ctx.places = (batch, heads), places
        return out.view(batch, heads, queries, d_head)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key, value and table, each block computed again."""
        q, k, v, table, out, log_sum = ctx.saved_tensors
        (batch, heads), (window, first) = ctx.shape, ctx.places
        queries, keys, d_head = q.shape[1], k.shape[1], v.shape[2]
        g = grad_out.reshape(batch * heads, queries, d_head)  # (BH, L, D)
        grad_q, grad_table = torch.empty_like(q), torch.zeros_like(table)
        grad_k, grad_v = torch.zeros_like(k), torch.zeros_like(v)
        delta = (g * out).sum(-1, keepdim=True).neg_()  # (BH, L, 1)
        rows, width = min(ROWS, queries), table.shape[2] - 1
        hide = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)
        groups = list(_groups(batch, heads, width))
        buffer = q.new_empty(max(n1 - n0 for n0, n1, _ in groups) * rows * (width + 1))
        grad_buffer = torch.empty_like(buffer)
        for n0, n1, head_slice in groups:
            maps = n1 - n0
            for i0, i1, j0, j1 in _blocks(queries, keys, window):
                b, w = i1 - i0, j1 - j0
                qi, ki, vi, gi = q[n0:n1, i0:i1], k[n0:n1, j0:j1], v[n0:n1, j0:j1], g[n0:n1, i0:i1]
                tables = _tables_of_block(table, head_slice, w, first + i0)
                rel = [_for_maps(rows_used, maps) for rows_used in tables]  # V of (n, w + 1, D)
                weights = _block_logits(qi, ki, rel, buffer, hide)
                weights.sub_(log_sum[n0:n1, i0:i1]).exp_()  # (n, b, w)
                grad_v[n0:n1, j0:j1].baddbmm_(weights.transpose(1, 2), gi)
                by_distance = grad_buffer[: maps * b * (w + 1)].view(maps, b, w + 1)
                grad_logits = _skewed_view(by_distance, b, w)  # (n, b, w)
                grad_logits.copy_(delta[n0:n1, i0:i1].expand(maps, b, w))
                grad_logits.baddbmm_(gi, vi.transpose(1, 2)).mul_(weights)
                flat = by_distance.view(maps, -1)
                flat[:, : b - 1] = 0  # what the view does not cover
                flat[:, -1] = 0
                grad_k[n0:n1, j0:j1].baddbmm_(grad_logits.transpose(1, 2), qi)
                grad_qi = grad_q[n0:n1, i0:i1]
                torch.bmm(grad_logits, ki, out=grad_qi)
                grad_tables = _tables_of_block(grad_table, head_slice, w, first + i0)
                turns = len(rel)
                for turn in range(min(turns, b)):
                    grad_rows = by_distance[:, turn::turns]  # (n, b/V, w + 1)
                    grad_qi[:, turn::turns, :d_head].baddbmm_(grad_rows, rel[turn])
                    rows_of_turn = qi[:, turn::turns, :d_head]  # (n, b/V, D)
                    grad_rel = torch.bmm(grad_rows.transpose(1, 2), rows_of_turn)  # (n, w + 1, D)
                    grad_used = grad_tables[turn]  # (heads or 1, w + 1, D)
                    grad_used.add_(grad_rel.view(-1, *grad_used.shape).sum(0))
        return (
            grad_q.div_(math.sqrt(d_head)).view(batch, heads, queries, -1),
            grad_k.view(batch, heads, keys, -1),
            grad_v.view(batch, heads, keys, d_head),
            grad_table,
            None,
        )
