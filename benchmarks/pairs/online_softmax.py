"""The step of an online softmax that the attention programs share, for either compiler."""

LOG2_E = 1.4426950408889634
# A score that is not seen. It is finite, so that a row without any score stays a number, and small
# enough for ``x * scale - top * scale`` of a row that sees nothing yet: a GPU rounds the second
# product alone (a fused multiply-add), and what is left of 1e30 would be huge.
HIDDEN = -1e6


def softmax_step(T, rows, columns, dim, scale):
    """A macro that turns scores into weights, and rescales what was summed so far.

    ``top`` holds the greatest score of each row and ``total`` its sum of weights; ``scale`` is to
    the base 2. ``acc`` has shape (rows, dim), ``scores`` and ``weights`` (rows, columns).
    """

    @T.macro
    def step(scores, weights, acc, top, before, rescale, part, total):
        T.copy(top, before)
        T.reduce_max(scores, top, dim=1, clear=False)
        for i in T.Parallel(rows):
            rescale[i] = T.exp2(before[i] * scale - top[i] * scale)
        for i, j in T.Parallel(rows, columns):
            scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
        T.reduce_sum(scores, part, dim=1)
        for i in T.Parallel(rows):
            total[i] = total[i] * rescale[i] + part[i]
        for i, j in T.Parallel(rows, dim):
            acc[i, j] *= rescale[i]
        T.copy(scores, weights)

    return step
