"""Until every caller is rewritten (issue 30): see `gnnrag.io`."""

from gnnrag.io import markdown as markdown
from gnnrag.io import parse_json as parse_json
