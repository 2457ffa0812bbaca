"""How wheels are built: without torch, for every Python here, the same bytes each time."""
