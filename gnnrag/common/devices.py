"""Until every caller is rewritten (issue 30): see `gnnrag.devices`."""

from gnnrag.devices import device_named as device_named
from gnnrag.devices import has_gpu as has_gpu
from gnnrag.devices import pass_rows as pass_rows
