"""Names that TileLang programs import and that have no other place here.

``tileops.install_alias("tilelang")`` leads to them; ``docs/migrating.md`` has the table.
"""
