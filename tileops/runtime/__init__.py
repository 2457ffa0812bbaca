"""Owns the way from an artifact to a loaded kernel: ops, variants, entries, devices.

Importing this package loads no native code; the first function that needs it does.
"""

from tileops.runtime.binding import (
    Resolver,
    add_entry,
    add_variant,
    alias_op,
    counters,
    create_op,
    detach,
    direct_call,
    is_strict,
    load_bundle,
    load_entry,
    recent_launches,
    release,
    retire_op,
    set_origin,
    set_resolver,
    set_strict,
    set_sync,
    static_json,
    unload,
)
from tileops.runtime.devices import (
    current_device,
    device_count,
    device_properties,
    device_target,
    is_capturing,
    resolve_target,
)

__all__ = [
    "Resolver",
    "add_entry",
    "add_variant",
    "alias_op",
    "counters",
    "create_op",
    "current_device",
    "detach",
    "device_count",
    "device_properties",
    "device_target",
    "direct_call",
    "is_capturing",
    "is_strict",
    "load_bundle",
    "load_entry",
    "recent_launches",
    "release",
    "resolve_target",
    "retire_op",
    "set_origin",
    "set_resolver",
    "set_strict",
    "set_sync",
    "static_json",
    "unload",
]
