"""Launches whose threads have roles of their own, checked and put in order."""

from tileops.passes.explicit.order_roles import order_roles as order_roles
