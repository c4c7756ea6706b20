"""Until every caller is rewritten (issue 30): see `gnnrag.arrays`."""

from gnnrag.arrays import Lists as Lists
from gnnrag.arrays import distinct as distinct
