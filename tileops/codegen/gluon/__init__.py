"""Generation of Gluon text: launches in roles for Hopper's asynchronous units."""

from tileops.codegen.gluon.module import emit_roles as emit_roles
