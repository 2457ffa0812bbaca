"""The passes from IR to IR and ``pipeline``, their order.

A module named for a verb is a pass, but for ``analyze_...``: analyses, which passes and generators
share. Nouns are what several passes or one large one need.
"""
