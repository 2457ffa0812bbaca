"""Programs that tileops and TileLang compile from the same source, one file a program."""
