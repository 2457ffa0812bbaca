"""The fleet cache: entries that machines share through a server or folder that they do not trust.

``tileops.cache.store`` asks it on a miss and gives it what was compiled (``fleet.py``); nothing of
it raises into a call. It is imported where a remote is named and used, its clients at first use.
"""
