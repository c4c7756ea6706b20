"""Tables and artefacts of an index."""

import os
import warnings

os.environ.setdefault("LANCE_LOG", "error")  # else it warns of each table that it makes
warnings.filterwarnings("ignore", "lance is not fork-safe")  # a child that OpenVINO forks does not use Lance
