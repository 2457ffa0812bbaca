"""Attention in float64, a head at a time, for the attention programs."""

import torch

LN_2 = 0.6931471805599453


def attend(q, k, v, scale, visible=None, sink=None, softcap=0.0):
    """softmax(q k^T scale) v for q (M, D), k (N, D) and v (N, E), all of one head.

    ``visible`` (M, N) says which keys a query sees; ``sink`` is one more logit without a value;
    ``softcap`` bounds the logits.
    """
    logits = q.double() @ k.double().T * scale
    if softcap:
        logits = softcap * (logits / softcap).tanh()
    if visible is not None:
        logits = logits.masked_fill(~visible, -torch.inf)
    if sink is not None:
        logits = torch.cat([logits, sink.double().expand(len(q), 1)], -1)
    return logits.softmax(-1)[:, : len(k)] @ v.double()


def attend_heads(Q, K, V, scale, **options):
    """``attend`` for Q (B, S, H, D), K (B, S, HK, D), V (B, S, HK, E): (B, S, H, E) in float64."""
    B, S, H, _ = Q.shape
    groups = H // K.shape[2]
    out = torch.empty(B, S, H, V.shape[3], dtype=torch.float64, device=Q.device)
    sinks = options.pop("sinks", None)
    for b in range(B):
        for h in range(H):
            sink = None if sinks is None else sinks[h]
            k, v = K[b, :, h // groups], V[b, :, h // groups]
            out[b, :, h] = attend(Q[b, :, h], k, v, scale, sink=sink, **options)
    return out


def causal(S, device, window=0):
    """Which keys each of S queries sees: itself and earlier ones, the last ``window`` if given."""
    at = torch.arange(S, device=device)
    back = at[:, None] - at[None, :]
    return (back >= 0) & (back < window) if window else back >= 0


def forward_and_sums(Q, K, V, scale, visible=None):
    """The output, rounded to the dtype of Q, and log2 of each row's sum of exps, (B, H, S) float32.

    These are what a forward pass leaves for the backward pass; Q, K and V are (B, S, H, D).
    """
    B, S, H, _ = Q.shape
    O = torch.empty_like(Q)
    sums = torch.empty(B, H, S, device=Q.device)
    for b in range(B):
        for h in range(H):
            logits = Q[b, :, h].double() @ K[b, :, h].double().T * scale
            if visible is not None:
                logits = logits.masked_fill(~visible, -torch.inf)
            sums[b, h] = logits.logsumexp(-1) / LN_2
            O[b, :, h] = (logits.softmax(-1) @ V[b, :, h].double()).to(O.dtype)
    return O, sums


def backward_heads(Q, K, V, dO, scale, visible=None):
    """The gradients of Q, K and V in float64; all are (B, S, H, D)."""
    B, _, H, _ = Q.shape
    dQ, dK, dV = (torch.empty(x.shape, dtype=torch.float64, device=x.device) for x in (Q, K, V))
    for b in range(B):
        for h in range(H):
            q, k, v, do = (x[b, :, h].double() for x in (Q, K, V, dO))
            logits = q @ k.T * scale
            if visible is not None:
                logits = logits.masked_fill(~visible, -torch.inf)
            p = logits.softmax(-1)
            dp = do @ v.T
            ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * scale
            dQ[b, :, h], dK[b, :, h], dV[b, :, h] = ds @ k, ds.T @ q, p.T @ do
    return dQ, dK, dV
